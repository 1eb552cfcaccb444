package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"vreplica.dev/scheduler/internal/replicas"
)

const (
	vpodsMax = 200
	keyMax   = 700
)

var vpodKey = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9.@]*/[A-Za-z0-9][-A-Za-z0-9.@]*$`)

// ErrUnresolved is that nothing is known about a vpod: no replica has answered yet, or there is no such vpod.
var ErrUnresolved = errors.New("not resolved")

// PlacedPod is a pod that serves a vpod.
type PlacedPod struct {
	// Pod is its namespace/name.
	Pod       string `json:"pod"`
	VReplicas int    `json:"vreplicas"`
	// Indexes says which vreplicas are there, in a pool with identity Indexed.
	Indexes Indexes `json:"indexes,omitempty"`
}

// Placements are the pods of one vpod, as of Generation. Callers share Pods, and must not change it.
type Placements struct {
	Generation int64       `json:"generation"`
	Pods       []PlacedPod `json:"placements"`
}

// ResolverConfig says where the service is. Only URLs is needed.
type ResolverConfig struct {
	// URLs are those of the service. A host stands for all its addresses.
	URLs []string
	// TokenFile and CAFile are read for each request, as the kubelet replaces them.
	TokenFile, CAFile string
	// VPodsMax is how many vpods are watched at a time, 200 by default. The one that nobody has asked about
	// for longest is forgotten. The service allows a caller so many streams.
	VPodsMax int
	// Report hears what went wrong; log.Printf by default.
	Report func(format string, arguments ...any)
}

// Resolver tells which pods serve a vpod, for those that send work to them. Its methods may be called
// concurrently.
type Resolver struct {
	config   ResolverConfig
	replicas *replicas.Replicas
	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu      sync.Mutex
	watches map[string]*vpodWatch
}

// vpodWatch has what is known about one vpod. Resolver.mu guards what changes.
type vpodWatch struct {
	asked  time.Time
	cancel context.CancelFunc
	// answered is closed with the first answer.
	answered chan struct{}
	once     sync.Once
	// known is nil before the first line, and while there is no such vpod; problem says why.
	known   *Placements
	problem error
}

// NewResolver returns a resolver. Nothing is sent yet. Close ends its watches.
func NewResolver(config ResolverConfig) (*Resolver, error) {
	if len(config.URLs) == 0 {
		return nil, errors.New("adapter.ResolverConfig needs URLs")
	}
	if config.VPodsMax == 0 {
		config.VPodsMax = vpodsMax
	}
	if config.Report == nil {
		config.Report = log.Printf
	}
	found, err := replicas.New(replicas.Config{
		URLs:             config.URLs,
		TokenFile:        config.TokenFile,
		CAFile:           config.CAFile,
		HandshakeTimeout: requestTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("adapter.ResolverConfig.URLs: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Resolver{
		config: config, replicas: found, ctx: ctx, cancel: cancel, watches: map[string]*vpodWatch{},
	}, nil
}

// Close ends all watches.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.tasks.Wait()
}

// Resolve returns where a vpod (namespace/name) is served. The first question opens a watch and waits for its
// first line, 5 s at most. Later ones are answered at once, also while the service is down. Its errors are
// ErrUnresolved, that of ctx, or that vpod is no key.
func (r *Resolver) Resolve(ctx context.Context, vpod string) (Placements, error) {
	watch, err := r.watching(vpod)
	if err != nil {
		return Placements{}, err
	}
	limit, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	select {
	case <-watch.answered:
	case <-limit.Done():
	case <-r.ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case watch.known != nil:
		return *watch.known, nil
	case ctx.Err() != nil:
		return Placements{}, ctx.Err()
	case watch.problem != nil:
		return Placements{}, fmt.Errorf("%s: %w: %w", vpod, ErrUnresolved, watch.problem)
	default:
		return Placements{}, fmt.Errorf("%s: %w: no replica has answered", vpod, ErrUnresolved)
	}
}

// watching returns the watch of a vpod, a new one if there is none.
func (r *Resolver) watching(vpod string) (*vpodWatch, error) {
	if len(vpod) > keyMax || !vpodKey.MatchString(vpod) {
		return nil, fmt.Errorf("%.80q is not a vpod's namespace/name", vpod)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	watch := r.watches[vpod]
	if watch == nil {
		if r.ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w: the resolver is closed", vpod, ErrUnresolved)
		}
		if len(r.watches) >= r.config.VPodsMax {
			r.forgetOldest()
		}
		ctx, cancel := context.WithCancel(r.ctx)
		watch = &vpodWatch{cancel: cancel, answered: make(chan struct{})}
		r.watches[vpod] = watch
		r.tasks.Add(1)
		go func() {
			defer r.tasks.Done()
			r.follow(ctx, vpod, watch)
		}()
	}
	watch.asked = time.Now()
	return watch, nil
}

// forgetOldest ends the watch that nobody has asked for longest. The caller holds mu.
func (r *Resolver) forgetOldest() {
	oldest := ""
	for vpod, watch := range r.watches {
		if oldest == "" || watch.asked.Before(r.watches[oldest].asked) {
			oldest = vpod
		}
	}
	if oldest != "" {
		r.watches[oldest].cancel()
		delete(r.watches, oldest)
	}
}

func (r *Resolver) follow(ctx context.Context, vpod string, watch *vpodWatch) {
	name, kind, _ := strings.Cut(vpod, "@")
	path := "/v1/placements/" + name + "?watch=true"
	if kind != "" {
		path += "&kind=" + url.QueryEscape(kind)
	}
	fail := func(err error) {
		r.config.Report("%s: not resolved anew: %v", vpod, err)
		var answered *refused
		r.mu.Lock()
		watch.problem = err
		if errors.As(err, &answered) && answered.status == http.StatusNotFound {
			watch.known = nil
			watch.once.Do(func() { close(watch.answered) })
		}
		r.mu.Unlock()
	}
	take := func(line []byte) {
		read, err := readPlacements(line)
		if err != nil {
			fail(err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if watch.known == nil || read.Generation >= watch.known.Generation {
			watch.known = read
		}
		watch.once.Do(func() { close(watch.answered) })
	}
	(&service{replicas: r.replicas}).watch(ctx, path, take, fail, func() time.Duration { return retryLast })
}

func readPlacements(line []byte) (*Placements, error) {
	var read Placements
	if err := json.Unmarshal(line, &read); err != nil {
		return nil, fmt.Errorf("placements cannot be read: %w", err)
	}
	if read.Pods == nil || len(read.Pods) > sharesMax {
		return nil, errors.New("placements are missing, or too many")
	}
	for _, each := range read.Pods {
		if err := each.Indexes.check(each.VReplicas, 0); err != nil {
			return nil, fmt.Errorf("the pod %.80q has the indexes %.80q: %w", each.Pod, each.Indexes, err)
		}
	}
	return &read, nil
}
