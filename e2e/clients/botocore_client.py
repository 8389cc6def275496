"""Asks STS who it is, with botocore, its default credential chain and nothing set.

It takes STS' address and prints the caller's ARN.
"""
import sys

import botocore.session
from botocore.utils import InstanceMetadataRegionFetcher

session = botocore.session.Session()
region = InstanceMetadataRegionFetcher().retrieve_region()
print(session.create_client("sts", region_name=region, endpoint_url=sys.argv[1]).get_caller_identity()["Arn"])
