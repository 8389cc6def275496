package imds

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
)

// answer is a response before it is written.
type answer struct {
	status      int
	contentType string
	header      map[string]string // beside those that every answer has
	body        []byte
}

// failure is an error as EC2 answers it: an XHTML page that says no more than the status.
func failure(status int) answer {
	title := fmt.Sprintf("%d - %s", status, http.StatusText(status))
	return answer{status: status, contentType: "text/html", body: []byte(`<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
	"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head>
  <title>` + title + `</title>
 </head>
 <body>
  <h1>` + title + `</h1>
 </body>
</html>
`)}
}

// forwarded refuses a request that came through a proxy: 403 with an empty body, as seen in
// https://github.com/awslabs/aws-sdk-kotlin/issues/627.
func forwarded() answer { return answer{status: http.StatusForbidden, contentType: "text/plain"} }

// notAllowed is EC2's 405, which has no body.
func notAllowed(allow string) answer {
	return answer{
		status: http.StatusMethodNotAllowed, contentType: "text/plain",
		header: map[string]string{"Allow": allow},
	}
}

func (s *Server) write(w http.ResponseWriter, a answer) {
	h := w.Header()
	for name, value := range a.header {
		h.Set(name, value)
	}
	h.Set("Server", "EC2ws")
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	h.Set("Accept-Ranges", "none")
	if a.status == http.StatusOK {
		h.Set("Last-Modified", s.issued().UTC().Format(http.TimeFormat))
		h.Set("Etag", fmt.Sprintf(`"%d"`, crc32.ChecksumIEEE(a.body)))
	}
	if !s.cfg.KeepAlive {
		h.Set("Connection", "close")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that has gone is no concern of the server's
}
