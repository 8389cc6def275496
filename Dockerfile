# One static binary and the CA certificates, on nothing. "make image" makes the same without a container engine.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X pod2role/cli.linkedVersion=$VERSION" -o /pod2role .

FROM scratch
ARG VERSION=dev REVISION
LABEL org.opencontainers.image.title="pod2role" \
      org.opencontainers.image.description="Gives every pod on a Kubernetes node the credentials of its own IAM role" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /pod2role /pod2role
ENTRYPOINT ["/pod2role"]
