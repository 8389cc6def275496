package migrate

// FlagAdvice says what to do about a flag of kube2iam or Kiam that pod2role does not have, as the end of a sentence:
// "use --hold". The name comes without dashes. It returns false for what was never a flag of theirs, and for flags that
// pod2role has under the same name.
func FlagAdvice(name string) (advice string, ok bool) {
	switch name {
	// kube2iam, https://github.com/jtblin/kube2iam#options.
	case "api-server", "insecure":
		return "give --kubeconfig, with the API server's certificate authority in it", true
	case "api-token":
		return "give --kubeconfig: a token on the command line can be read by everyone on the node", true
	case "auto-discover-default-role":
		return "name the role with --default-role: to give pods the node's own role is what this program prevents", true
	case "iam-role-error-ttl":
		return "drop it: refusals are always remembered for a short while", true
	case "cache-resync-period", "sync":
		return "drop it: the watch needs no resync", true
	case "resolve-duplicate-cache-ips":
		return "drop it: two pods with one address are always told apart, or refused", true
	case "backoff-max-interval", "backoff-max-elapsed-time":
		return "use --hold, which says how long the request of a pod that is not known yet is held", true
	case "use-regional-sts-endpoint":
		return "drop it: the regional endpoint is the default", true
	case "verbose":
		return "use --log-level=debug", true
	case "debug", "pprof-listen-addr":
		return "use --debug-addr", true
	case "version":
		return "use `pod2role version`", true

	// Kiam, the flags of agent and server.
	case "port":
		return "use --app-port", true
	case "host":
		return "use --host-ip", true
	case "role-base-arn":
		return "use --base-role-arn", true
	case "role-base-arn-autodetect":
		return "use --auto-discover-base-arn", true
	case "session":
		return "use --session-name-template; Kiam put kiam- in front", true
	case "session-duration":
		return "use --iam-role-session-ttl", true
	case "session-refresh":
		return "drop it: sessions are renewed from half of their life", true
	case "allow-route-regexp", "whitelist-route-regexp":
		return "use --passthrough-allow, which has to match the whole path, and --passthrough=none", true
	case "iptables-remove", "no-iptables-remove":
		return "drop it: the rules stay while the daemon restarts", true
	case "allow-ip-query":
		return "drop it: nobody may ask for another pod", true
	case "disable-strict-namespace-regexp":
		return "drop it: a pattern always has to match the whole ARN", true
	case "fetchers", "prefetch-buffer-size":
		return "drop it; --sts-rate and --sts-burst bound the calls to STS", true
	case "prometheus-listen-addr":
		return "use --metrics-port", true
	case "prometheus-sync-interval", "server-address-refresh":
		return "drop it: it did nothing in Kiam either", true
	case "json-log":
		return "use --log-format=json", true
	case "level":
		return "use --log-level", true
	case "bind", "server-address", "gateway-timeout-creation", "cert", "key", "ca", "grpc-keepalive-time-duration",
		"grpc-keepalive-timeout-duration", "grpc-keepalive-permit-without-stream", "grpc-max-connection-idle-duration",
		"grpc-max-connection-age-duration", "grpc-max-connection-age-grace-duration":
		return "drop it: there is no server to talk to", true
	}
	return "", false
}
