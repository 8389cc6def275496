package cli

import (
	"io"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"pod2role/config"
)

// newLog returns the daemon's log. The formats are logrus' own.
func newLog(to io.Writer, c config.Config) (*logrus.Entry, error) {
	log := logrus.New()
	log.SetOutput(to)
	level, err := logrus.ParseLevel(c.LogLevel)
	if err != nil {
		return nil, usageError{err}
	}
	log.SetLevel(level)
	if c.LogFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	}
	if c.Node == "" { // "pod2role rules" is not told
		return logrus.NewEntry(log), nil
	}
	return log.WithField("node", c.Node), nil
}

// routeKlog sends what client-go logs, which is process-wide, to the daemon's log, at debug level: what matters of it
// the daemon reports itself.
func routeKlog(log *logrus.Entry) {
	sink := funcr.New(func(_, args string) { log.WithField("part", "client-go").Debug(args) }, funcr.Options{})
	klog.SetLoggerWithOptions(logr.New(sink.GetSink()), klog.ContextualLogger(true))
}
