// Package adaptertest plays vreplica-scheduler for tests of adapters, on a local port of the test's process.
//
//	service := adaptertest.New(t)
//	one, two := service.Pod("worker-0"), service.Pod("worker-1")
//	// Run an adapter with adapter.Config{URLs: []string{one.URL}} and one with two.URL.
//	one.Tell("team-a/orders", adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
//	one.Serving("team-a/orders")
//	service.Move("team-a/orders", one, two)
package adaptertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"vreplica.dev/scheduler/adapter"
)

const linesMax = 1000

// Service is the service for the pods of one pool. Its methods may be called concurrently.
type Service struct {
	// URL is for a resolver. Pods have their own, so that a test needs no token.
	URL string

	t      testing.TB
	lease  time.Duration
	server *httptest.Server
	closed chan struct{}
	once   sync.Once

	mu     sync.Mutex
	pods   map[string]*Pod
	status int
	// ignoresLoad: it does not lead, and keeps no load.
	ignoresLoad bool
	// streams are those of assignments and of placements.
	streams map[*stream]struct{}
	// heard is closed with the next acknowledgement that is taken.
	heard chan struct{}
}

// stream has the lines that are still to be sent; nil cuts it.
type stream struct {
	lines chan []byte
	pod   *Pod
	vpod  string
}

// New returns a service that ends with the test.
func New(t testing.TB) *Service { return NewExclusive(t, 0) }

// NewExclusive returns one whose pool is exclusive, with this lease.
func NewExclusive(t testing.TB, lease time.Duration) *Service {
	s := &Service{
		t: t, lease: lease, closed: make(chan struct{}),
		pods: map[string]*Pod{}, streams: map[*stream]struct{}{}, heard: make(chan struct{}),
	}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /pods/{pod}/v1/assignment", s.assignment)
	handler.HandleFunc("POST /pods/{pod}/v1/acknowledge", s.acknowledge)
	handler.HandleFunc("GET /v1/placements/{namespace}/{name}", s.placements)
	s.server = httptest.NewServer(s.faulty(handler))
	s.URL = s.server.URL
	t.Cleanup(s.Close)
	return s
}

// Close ends the service for good: nobody answers any more.
func (s *Service) Close() {
	s.once.Do(func() {
		close(s.closed)
		s.server.Listener.Close()
		s.server.CloseClientConnections()
		s.server.Close()
	})
}

// Pod returns the pod of this name, a new one at the first call.
func (s *Service) Pod(name string) *Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[name] == nil {
		s.pods[name] = &Pod{
			Name: "adapters/" + name, URL: s.URL + "/pods/" + name,
			service: s, uid: "uid-of-" + name, generation: 1,
			shares: map[string]adapter.Told{}, load: map[string]float64{},
		}
	}
	return s.pods[name]
}

// Fail answers each request with this status from now on, and as ever with 0. Streams that are open stay.
func (s *Service) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// IgnoreLoad makes it a replica that does not lead: it keeps no load.
func (s *Service) IgnoreLoad() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ignoresLoad = true
}

// Cut ends the streams that are open, in the middle of a line.
func (s *Service) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for each := range s.streams {
		s.sendTo(each, nil)
	}
}

// Move hands a share over as the pool's mode has it: in an exclusive pool the source lets go first, in others
// the destination serves first. The share gets the next epoch.
func (s *Service) Move(key string, source, destination *Pod) {
	s.t.Helper()
	told := source.told(key)
	told.State, told.Peer, told.Deadline, told.Intent = adapter.Prepare, source.Name, time.Time{}, ""
	destination.Tell(key, told)
	destination.Ready(key)
	served := told
	served.State, served.Peer, served.Epoch = adapter.Serve, "", told.Epoch+1
	serve := func() {
		s.t.Helper()
		destination.Tell(key, served)
		destination.Serving(key)
	}
	if s.lease == 0 {
		serve()
	}
	told.State, told.Peer, told.Intent = adapter.Drain, destination.Name, "Rebalance"
	told.Deadline = time.Now().Add(5 * time.Second)
	source.Tell(key, told)
	source.Drained(key)
	source.Remove(key)
	if s.lease != 0 {
		serve()
	}
}

// SendPlacements sends a line to the resolvers of a vpod: an old generation, for example.
func (s *Service) SendPlacements(vpod, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for each := range s.streams {
		if each.pod == nil && each.vpod == vpod {
			s.sendTo(each, []byte(line))
		}
	}
}

// Watched returns the vpods for which a resolver has a stream, sorted.
func (s *Service) Watched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []string{}
	for each := range s.streams {
		if each.pod == nil {
			found = append(found, each.vpod)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (s *Service) faulty(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		s.mu.Lock()
		status := s.status
		s.mu.Unlock()
		if status != 0 {
			http.Error(reply, `{"error": "this is a test"}`, status)
			return
		}
		handler.ServeHTTP(reply, request)
	})
}

func (s *Service) assignment(reply http.ResponseWriter, request *http.Request) {
	pod := s.known(reply, request)
	if pod == nil {
		return
	}
	s.follow(reply, request, &stream{pod: pod}, pod.document)
}

func (s *Service) placements(reply http.ResponseWriter, request *http.Request) {
	vpod := request.PathValue("namespace") + "/" + request.PathValue("name")
	if kind := request.URL.Query().Get("kind"); kind != "" {
		vpod += "@" + kind
	}
	s.follow(reply, request, &stream{vpod: vpod}, func() []byte { return s.placementsOf(vpod) })
}

// placementsOf is a line about a vpod. One that is nowhere has no pods. The caller holds mu.
func (s *Service) placementsOf(vpod string) []byte {
	found := adapter.Placements{Pods: []adapter.PlacedPod{}}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		pod := s.pods[name]
		found.Generation += pod.generation
		if told, is := pod.shares[vpod]; is && told.State != adapter.Prepare {
			found.Pods = append(found.Pods, adapter.PlacedPod{
				Pod: pod.Name, VReplicas: told.VReplicas, Indexes: told.Indexes,
			})
		}
	}
	line, _ := json.Marshal(found)
	return line
}

func (s *Service) follow(reply http.ResponseWriter, request *http.Request, opened *stream, first func() []byte) {
	s.mu.Lock()
	opened.lines = make(chan []byte, linesMax)
	opened.lines <- first()
	s.streams[opened] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, opened)
	}()
	for {
		select {
		case line := <-opened.lines:
			if line == nil {
				fmt.Fprint(reply, `{"generation":`)
				_ = http.NewResponseController(reply).Flush()
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(reply, "%s\n", line)
			_ = http.NewResponseController(reply).Flush()
		case <-request.Context().Done():
			return
		case <-s.closed:
			return
		}
	}
}

// changed tells all streams that are about a pod or a vpod. The caller holds mu.
func (s *Service) changed(pod *Pod) {
	for each := range s.streams {
		switch {
		case each.pod == pod:
			s.sendTo(each, pod.document())
		case each.pod == nil:
			s.sendTo(each, s.placementsOf(each.vpod))
		}
	}
}

func (s *Service) sendTo(each *stream, line []byte) {
	select {
	case each.lines <- line:
	default:
		s.t.Errorf("a stream has %d lines that nobody has read", linesMax)
	}
}

// known returns the pod of a request; nil after an answer that there is none.
func (s *Service) known(reply http.ResponseWriter, request *http.Request) *Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods[request.PathValue("pod")]
	if pod == nil {
		http.Error(reply, `{"error": "no such pod"}`, http.StatusNotFound)
	}
	return pod
}
