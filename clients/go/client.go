package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"vreplica.dev/scheduler/internal/replicas"
)

const (
	// DefaultTimeout is the limit of one request. The service answers or gives up within its own
	// deadline, by default 4 s.
	DefaultTimeout = 6 * time.Second
	// DefaultRetryAfter is used if an answer has no value: Knative's requeue delay.
	DefaultRetryAfter = 5 * time.Second

	replyBytesMax   = 4 << 20
	stateBytesMax   = 32 << 20
	messageBytesMax = 500
)

// Config says where the service is, and which pool and kind of objects this scheduler is for.
type Config struct {
	// URLs are those of the service. A host name stands for all its addresses, as that of a headless
	// Service does: https://vreplica-schedule.vreplica-system.svc:10263.
	URLs []string
	// StatefulSetNamespace and StatefulSetName are as in Knative's Config. Pool is the name of the
	// AdapterPool, if it differs from the StatefulSet's.
	StatefulSetNamespace, StatefulSetName, Pool string
	// Kind and Group are those of the objects: ConsumerGroup, internal.kafka.eventing.knative.dev.
	Kind, Group string
	// TokenFile has a ServiceAccount token for the service's audience. It is read for each request,
	// as the kubelet replaces it. It is sent over TLS only.
	TokenFile string
	// CAFile has the authorities of the service's certificate, PEM. It is read again when it changes.
	// Empty: those of the system.
	CAFile string
	// ClientCertFile and ClientKeyFile are for a service that wants a certificate instead of a token.
	ClientCertFile, ClientKeyFile string
	// Timeout is the limit of one request. Zero: DefaultTimeout.
	Timeout time.Duration
}

// Client is a Scheduler that asks the service. Its methods may be called concurrently.
type Client struct {
	config   Config
	pool     poolRef
	replicas *replicas.Replicas
}

var _ Scheduler = (*Client)(nil)

type poolRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (p poolRef) key() string { return p.Namespace + "/" + p.Name }

// New returns a client. Nothing is sent or read yet.
func New(config Config) (*Client, error) {
	pool := poolRef{config.StatefulSetNamespace, orElse(config.Pool, config.StatefulSetName)}
	if len(config.URLs) == 0 || pool.Namespace == "" || pool.Name == "" {
		return nil, errors.New("scheduler.Config needs URLs, StatefulSetNamespace and StatefulSetName")
	}
	if config.Kind == "" || config.Group == "" {
		return nil, errors.New("scheduler.Config needs Kind and Group of the objects")
	}
	if (config.ClientCertFile == "") != (config.ClientKeyFile == "") {
		return nil, errors.New("scheduler.Config needs ClientCertFile and ClientKeyFile together")
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	found, err := replicas.New(replicas.Config{
		URLs:             config.URLs,
		TokenFile:        config.TokenFile,
		CAFile:           config.CAFile,
		ClientCertFile:   config.ClientCertFile,
		ClientKeyFile:    config.ClientKeyFile,
		HandshakeTimeout: config.Timeout,
	})
	if err != nil {
		return nil, fmt.Errorf("scheduler.Config.URLs: %w", err)
	}
	return &Client{config: config, pool: pool, replicas: found}, nil
}

type vpodRequest struct {
	Namespace       string      `json:"namespace"`
	Name            string      `json:"name"`
	Kind            string      `json:"kind"`
	Group           string      `json:"group"`
	VReplicas       int32       `json:"vreplicas"`
	Placements      []Placement `json:"placements"`
	ResourceVersion string      `json:"resourceVersion,omitempty"`
	Deleted         bool        `json:"deleted,omitempty"`
}

type scheduleRequest struct {
	VPod vpodRequest `json:"vpod"`
	Pool poolRef     `json:"pool"`
}

type scheduleReply struct {
	Placements        []Placement `json:"placements"`
	Left              int32       `json:"left"`
	Reason            string      `json:"reason"`
	RetryAfterSeconds float64     `json:"retryAfterSeconds"`
}

// Schedule implements Scheduler. An object that is being deleted gives everything back.
//
// Its errors are *InsufficientSlots (with placements), *NotScheduled and *RequestRefused, or the
// context's.
func (c *Client) Schedule(ctx context.Context, vpod VPod) ([]Placement, error) {
	body, err := json.Marshal(scheduleRequest{VPod: c.request(vpod), Pool: c.pool})
	if err != nil {
		return nil, err
	}
	content, err := c.ask(ctx, http.MethodPost, "/v1/schedule", body, replyBytesMax)
	if err != nil {
		return nil, err
	}
	var reply scheduleReply
	if err := json.Unmarshal(content, &reply); err != nil || reply.Placements == nil {
		return nil, &NotScheduled{RetryAfter: DefaultRetryAfter, Message: "the reply cannot be read"}
	}
	if reply.Left == 0 {
		return reply.Placements, nil
	}
	retry := DefaultRetryAfter
	if reply.RetryAfterSeconds > 0 {
		retry = time.Duration(reply.RetryAfterSeconds * float64(time.Second))
	}
	return reply.Placements, &InsufficientSlots{reply.Left, reply.Reason, retry}
}

func (c *Client) request(vpod VPod) vpodRequest {
	key := vpod.GetKey()
	published := make([]Placement, 0, len(vpod.GetPlacements()))
	for _, placement := range vpod.GetPlacements() {
		// Knative counts an entry of no vreplicas as none.
		if placement.VReplicas > 0 {
			published = append(published, placement)
		}
	}
	return vpodRequest{
		Namespace:       key.Namespace,
		Name:            key.Name,
		Kind:            c.config.Kind,
		Group:           c.config.Group,
		VReplicas:       max(0, vpod.GetVReplicas()),
		Placements:      published,
		ResourceVersion: vpod.GetResourceVersion(),
		Deleted:         vpod.GetDeletionTimestamp() != nil,
	}
}

// ask sends a request to one replica after the other, until one answers as the leader does.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, bytesMax int64) ([]byte, error) {
	var said []string
	var retry time.Duration
	addresses, unknown := c.replicas.Addresses(ctx)
	said = append(said, unknown...)
	for _, at := range addresses {
		content, err := c.askOne(ctx, at, method, path, body, bytesMax)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var next *NotScheduled
		if errors.As(err, &next) && !next.Stale {
			said = append(said, at.URL+": "+next.Message)
			retry = max(retry, next.RetryAfter)
			continue
		}
		c.replicas.Answered(at)
		return content, err
	}
	if retry == 0 {
		retry = DefaultRetryAfter
	}
	return nil, &NotScheduled{RetryAfter: retry, Message: strings.Join(said, "; ")}
}

func (c *Client) askOne(
	ctx context.Context, at replicas.Address, method, path string, body []byte, bytesMax int64,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, at.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, notNow(err.Error())
	}
	request.Host = at.Host
	// The same request again changes nothing. So the transport may repeat it where the server has
	// closed a kept-alive connection meanwhile. An empty value is not sent (net/http, Transport).
	request.Header["Idempotency-Key"] = nil
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if err := c.replicas.Authorize(request); err != nil {
		return nil, notNow(err.Error())
	}
	client, err := c.replicas.Client(at)
	if err != nil {
		return nil, notNow(err.Error())
	}
	reply, err := client.Do(request)
	if err != nil {
		// The URL is said already.
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return nil, notNow(err.Error())
	}
	defer reply.Body.Close()
	content, err := io.ReadAll(io.LimitReader(reply.Body, bytesMax+1))
	if err != nil {
		return nil, notNow(err.Error())
	}
	if int64(len(content)) > bytesMax {
		return nil, notNow(fmt.Sprintf("the reply is longer than %d bytes", bytesMax))
	}
	if reply.StatusCode == http.StatusOK {
		return content, nil
	}
	return nil, refusal(reply, content)
}

func notNow(message string) error {
	return &NotScheduled{RetryAfter: DefaultRetryAfter, Message: message}
}

func refusal(reply *http.Response, content []byte) error {
	message := strings.ToValidUTF8(string(content[:min(len(content), messageBytesMax)]), "")
	message = orElse(strings.Join(strings.Fields(message), " "), reply.Status)
	retry := DefaultRetryAfter
	if seconds, err := strconv.ParseUint(reply.Header.Get("Retry-After"), 10, 16); err == nil {
		retry = time.Duration(seconds) * time.Second
	}
	switch status := reply.StatusCode; {
	case status == http.StatusPreconditionFailed:
		return &NotScheduled{RetryAfter: retry, Stale: true, Message: message}
	case status == http.StatusUnauthorized: // the file may have another token by the next request
		return &NotScheduled{RetryAfter: retry, Message: message}
	case status >= 400 && status < 500:
		return &RequestRefused{Status: status, Message: message}
	default:
		return &NotScheduled{RetryAfter: retry, Message: message}
	}
}
