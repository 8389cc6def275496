// Command client asks the metadata service for credentials as botocore does, and prints what came of it.
//
// The manner is botocore's default (InstanceMetadataFetcher in botocore/utils.py): PUT for a token, GET for the list, GET
// for the role. Each request has one second and one attempt, and where there is no token it goes on as IMDSv1 does. It
// begins the moment the process starts. Each attempt is one line of JSON, an Attempt of package cluster.
package main
