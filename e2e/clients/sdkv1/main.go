// Command sdkv1 asks STS who it is, with the AWS SDK for Go v1, its default credential chain and nothing set.
// It takes STS' address and prints the caller's ARN.
package main

import (
	"fmt"
	"os"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/ec2metadata"
	"github.com/aws/aws-sdk-go/aws/session"
	"github.com/aws/aws-sdk-go/service/sts"
)

func main() {
	arn, err := whoAmI(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(arn)
}

func whoAmI(endpoint string) (string, error) {
	s, err := session.NewSession()
	if err != nil {
		return "", err
	}
	region, err := ec2metadata.New(s).Region()
	if err != nil {
		return "", fmt.Errorf("asking for the region: %w", err)
	}
	who, err := sts.New(s, aws.NewConfig().WithRegion(region).WithEndpoint(endpoint)).GetCallerIdentity(&sts.GetCallerIdentityInput{})
	if err != nil {
		return "", err
	}
	return aws.StringValue(who.Arn), nil
}
