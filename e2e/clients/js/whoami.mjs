// Asks STS who it is, with the AWS SDK for JavaScript v3, its default credential chain and nothing set.
// It takes STS' address and prints the caller's ARN.
import { GetCallerIdentityCommand, STSClient } from "@aws-sdk/client-sts";
import { MetadataService } from "@aws-sdk/ec2-metadata-service";

const zone = await new MetadataService().request("/latest/meta-data/placement/availability-zone", {});
const client = new STSClient({ region: zone.slice(0, -1), endpoint: process.argv[2] });
console.log((await client.send(new GetCallerIdentityCommand({}))).Arn);
