package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"vreplica.dev/scheduler"
)

const (
	answerBytesMax = 64 << 20
	lineBytesMax   = 4 << 20
	requestTimeout = 10 * time.Second
	watchSeconds   = 60
)

// api is what this controller asks of the API server.
type api struct {
	server, tokenFile string
	client            *http.Client
}

// statusError is an answer other than 2xx.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %.300s", e.status, e.message) }

func newAPI(server, caFile, tokenFile string) (*api, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		authorities, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(authorities)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	return &api{server: server, tokenFile: tokenFile, client: client}, nil
}

func (a *api) send(ctx context.Context, method, path, contentType string, body any) (*http.Response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if body == nil {
		content = nil
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	request.Header.Set("Content-Type", contentType)
	return a.client.Do(request)
}

// do sends a request and reads the object in the answer into result, which may be nil.
func (a *api) do(ctx context.Context, method, path, contentType string, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reply, err := a.send(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	content, err := io.ReadAll(io.LimitReader(reply.Body, answerBytesMax))
	if err != nil {
		return err
	}
	if reply.StatusCode < 200 || reply.StatusCode > 299 {
		return &statusError{reply.StatusCode, string(content)}
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(content, result)
}

func (a *api) setFinalizers(ctx context.Context, of *consumerGroup, finalizers []string) error {
	if finalizers == nil {
		finalizers = []string{}
	}
	return a.merge(ctx, of, "", map[string]any{"metadata": map[string]any{
		"resourceVersion": of.Metadata.ResourceVersion, "finalizers": finalizers,
	}})
}

func (a *api) setPlacements(ctx context.Context, of *consumerGroup, placements []scheduler.Placement) error {
	return a.merge(ctx, of, "/status", map[string]any{
		"metadata": map[string]any{"resourceVersion": of.Metadata.ResourceVersion},
		"status":   map[string]any{"placements": placements},
	})
}

// merge patches on the condition that nobody has written the object meanwhile.
func (a *api) merge(ctx context.Context, of *consumerGroup, subresource string, patch any) error {
	at := path + "/namespaces/" + of.Metadata.Namespace + "/consumergroups/" + of.Metadata.Name + subresource
	return a.do(ctx, http.MethodPatch, at, "application/merge-patch+json", patch, nil)
}

type groupList struct {
	Metadata metadata         `json:"metadata"`
	Items    []*consumerGroup `json:"items"`
}

type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch calls handle for each event after version until the watch ends.
func (a *api) watch(ctx context.Context, version string, handle func(kind string, object *consumerGroup) error) error {
	ctx, cancel := context.WithTimeout(ctx, (watchSeconds+10)*time.Second)
	defer cancel()
	at := fmt.Sprintf("%s/consumergroups?watch=true&resourceVersion=%s&timeoutSeconds=%d", path, version, watchSeconds)
	reply, err := a.send(ctx, http.MethodGet, at, "application/json", nil)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return &statusError{reply.StatusCode, "watch"}
	}
	lines := bufio.NewScanner(reply.Body)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var event watchEvent
		var object consumerGroup
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return &statusError{http.StatusGone, string(event.Object)}
		}
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return err
		}
		if err := handle(event.Type, &object); err != nil {
			return err
		}
	}
	return lines.Err()
}
