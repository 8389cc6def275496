// Command sdkv2 asks STS who it is, with the AWS SDK for Go v2, its default credential chain and nothing set.
// It takes STS' address and prints the caller's ARN.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := config.LoadDefaultConfig(ctx, config.WithEC2IMDSRegion())
	if err != nil {
		return "", err
	}
	client := sts.NewFromConfig(c, func(o *sts.Options) { o.BaseEndpoint = aws.String(endpoint) })
	who, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", err
	}
	return aws.ToString(who.Arn), nil
}
