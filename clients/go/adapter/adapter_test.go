package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const orders = "team-a/orders"

// scheduler is the service for one pod.
type scheduler struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	newest  assignment
	lines   []chan string
	said    []acknowledgement
	answers []int
	changed chan struct{}
}

func newScheduler(t *testing.T) *scheduler {
	s := &scheduler{t: t, changed: make(chan struct{}, 1)}
	s.newest = assignment{Generation: 40, UID: "u-1", Shares: map[string]Told{}}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /v1/assignment", s.stream)
	handler.HandleFunc("POST /v1/acknowledge", s.acknowledge)
	s.Server = httptest.NewServer(handler)
	t.Cleanup(s.Server.CloseClientConnections)
	return s
}

func (s *scheduler) stream(reply http.ResponseWriter, request *http.Request) {
	lines := make(chan string, 100)
	s.mu.Lock()
	lines <- s.document()
	s.lines = append(s.lines, lines)
	s.mu.Unlock()
	for {
		select {
		case line := <-lines:
			fmt.Fprintln(reply, line)
			reply.(http.Flusher).Flush()
		case <-request.Context().Done():
			return
		}
	}
}

func (s *scheduler) acknowledge(reply http.ResponseWriter, request *http.Request) {
	var said acknowledgement
	content, _ := io.ReadAll(request.Body)
	if err := json.Unmarshal(content, &said); err != nil {
		s.t.Errorf("acknowledged %s: %v", content, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) > 0 {
		status := s.answers[0]
		s.answers = s.answers[1:]
		http.Error(reply, `{"generation": 0}`, status)
		return
	}
	if said.Generation != s.newest.Generation {
		reply.WriteHeader(http.StatusConflict)
	} else {
		s.said = append(s.said, said)
	}
	fmt.Fprintf(reply, `{"generation": %d}`, s.newest.Generation)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *scheduler) document() string {
	content, _ := json.Marshal(s.newest)
	return string(content)
}

// tell changes a share; nil takes it away.
func (s *scheduler) tell(key string, told *Told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shares := map[string]Told{}
	for one, each := range s.newest.Shares {
		shares[one] = each
	}
	delete(shares, key)
	if told != nil {
		shares[key] = *told
	}
	s.newest.Shares = shares
	s.newest.Generation++
	s.sendLocked(s.document())
}

func (s *scheduler) send(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendLocked(line)
}

func (s *scheduler) sendLocked(line string) {
	for _, lines := range s.lines {
		lines <- line
	}
}

// until waits for an acknowledgement of the newest generation of which holds is true.
func (s *scheduler) until(what string, holds func(acknowledgement) bool) {
	s.t.Helper()
	limit := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		count := len(s.said)
		if count > 0 && s.said[count-1].Generation == s.newest.Generation && holds(s.said[count-1]) {
			s.mu.Unlock()
			return
		}
		said := s.said
		s.mu.Unlock()
		select {
		case <-s.changed:
		case <-limit:
			s.t.Fatalf("not said within 10 s: %s; said %+v", what, said)
		}
	}
}

func (s *scheduler) serving() {
	s.t.Helper()
	s.until("serving", func(said acknowledgement) bool {
		return slices.Contains(said.Serving, orders) && !slices.Contains(said.Busy, orders)
	})
}

func (s *scheduler) drained() {
	s.t.Helper()
	s.until("drained", func(said acknowledgement) bool { return slices.Contains(said.Drained, orders) })
}

// calls notes the callbacks.
type calls struct {
	mu     sync.Mutex
	made   []string
	shares []*Share
	fails  int
}

func (c *calls) named(name string) Callback {
	return func(_ context.Context, share *Share) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.made = append(c.made, name)
		c.shares = append(c.shares, share)
		if c.fails > 0 {
			c.fails--
			return errors.New("no database")
		}
		return nil
	}
}

func (c *calls) share() *Share {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shares[len(c.shares)-1]
}

func (c *calls) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.made, " ")
}

// run starts an adapter and returns what ends it, which waits for its end.
func (c *calls) run(t *testing.T, config Config) (end func() error) {
	config.OnPrepare, config.OnServe = c.named("prepare"), c.named("serve")
	config.OnDrain, config.OnStop = c.named("drain"), c.named("stop")
	config.Report = func(format string, arguments ...any) { t.Logf(format, arguments...) }
	if config.Folder == "" {
		config.Folder = t.TempDir()
	}
	made, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx) }()
	var once sync.Once
	end = func() (err error) {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	t.Cleanup(func() { _ = end() })
	return end
}

func (c *calls) expect(t *testing.T, made string) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if c.String() == made {
			return
		}
	}
	t.Fatalf("called %s, want %s", c, made)
}

func TestAShareGoesThroughItsLife(t *testing.T) {
	s, c := newScheduler(t), &calls{}
	c.run(t, Config{URLs: []string{s.URL}})
	s.tell(orders, &Told{State: Prepare, VReplicas: 2, Epoch: 7})
	s.until("ready", func(said acknowledgement) bool { return len(said.Busy) == 0 })
	c.expect(t, "prepare")
	if c.share().StillMine(7) {
		t.Error("a share that is prepared is not mine yet")
	}
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
	if share := c.share(); !share.StillMine(7) || share.StillMine(6) {
		t.Error("a share that is served is mine, under its epoch")
	}
	s.tell(orders, &Told{State: Drain, VReplicas: 2, Epoch: 7, Deadline: time.Now().Add(time.Minute)})
	s.drained()
	if c.share().StillMine(7) {
		t.Error("a share that is drained is not mine")
	}
	s.tell(orders, nil)
	c.expect(t, "prepare serve drain stop")
}

func TestAShareThatComesBackAfterItsDrainIsServedUnderItsNewEpoch(t *testing.T) {
	s, c := newScheduler(t), &calls{}
	c.run(t, Config{URLs: []string{s.URL}})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
	s.tell(orders, &Told{State: Drain, VReplicas: 2, Epoch: 7})
	s.drained()
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 8})
	s.serving()
	c.expect(t, "prepare serve drain prepare serve")
	if share := c.share(); share.StillMine(7) || !share.StillMine(8) {
		t.Error("only the new epoch is mine")
	}
}

func TestACallbackThatFailsIsCalledAgain(t *testing.T) {
	s, c := newScheduler(t), &calls{fails: 1}
	c.run(t, Config{URLs: []string{s.URL}})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
	c.expect(t, "prepare prepare serve")
}

func TestACallbackThatFailsAgainAndAgainIsCalledLessOften(t *testing.T) {
	s, c := newScheduler(t), &calls{fails: 1_000_000}
	c.run(t, Config{URLs: []string{s.URL}, Grace: 100 * time.Millisecond})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.until("busy", func(said acknowledgement) bool { return slices.Contains(said.Busy, orders) })
	time.Sleep(500 * time.Millisecond)
	c.expect(t, "prepare")
}

func TestAnOldGenerationAndAnotherPodsChangeNothing(t *testing.T) {
	s, c := newScheduler(t), &calls{}
	c.run(t, Config{URLs: []string{s.URL}})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
	s.send(`{"generation": 1, "uid": "u-1", "shares": {}}`)
	s.send(`{"generation": 999, "uid": "u-2", "shares": {}}`)
	s.send(`{"generation": 999, "uid": "u-1", "shares": {"a/b": {"state": "Dance"}}}`)
	s.send(`no json`)
	s.tell(orders, &Told{State: Serve, VReplicas: 3, Epoch: 7})
	s.serving()
	c.expect(t, "prepare serve serve")
}

func TestTheEndDrainsAndSaysSo(t *testing.T) {
	s, c := newScheduler(t), &calls{}
	end := c.run(t, Config{URLs: []string{s.URL}})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
	if err := end(); err != nil {
		t.Error(err)
	}
	c.expect(t, "prepare serve drain stop")
	s.drained()
}

func TestWhatIsRefusedIsSaidAgain(t *testing.T) {
	s, c := newScheduler(t), &calls{}
	s.answers = []int{503, 429, 500}
	c.run(t, Config{URLs: []string{s.URL}})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
}

func TestAShareWithoutDrainIsStoppedWhenItsDeadlineIsOver(t *testing.T) {
	s, c := newScheduler(t), &calls{}
	c.run(t, Config{URLs: []string{s.URL}})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
	c.mu.Lock()
	c.fails = 1
	c.mu.Unlock()
	s.tell(orders, &Told{State: Drain, VReplicas: 2, Epoch: 7, Deadline: time.Now().Add(300 * time.Millisecond)})
	c.expect(t, "prepare serve drain stop")
	s.drained()
}

func TestAnExpiredLeaseStopsWhatIsServedAndAnAnswerBringsItBack(t *testing.T) {
	s, c := newScheduler(t), &calls{}
	s.newest.LeaseSeconds = 1
	c.run(t, Config{URLs: []string{s.URL}})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
	share := c.share()
	s.mu.Lock()
	s.answers = slices.Repeat([]int{503}, 12)
	s.mu.Unlock()
	for until := time.Now().Add(1200 * time.Millisecond); time.Now().Before(until) && share.StillMine(7); {
		time.Sleep(time.Millisecond)
	}
	if share.StillMine(7) {
		t.Error("the lease has run out")
	}
	s.serving()
	c.expect(t, "prepare serve stop prepare serve")
	if share.StillMine(7) || !c.share().StillMine(7) {
		t.Error("it is another share now")
	}
}

func TestTheFileCountsWhileNoReplicaAnswers(t *testing.T) {
	folder, c := t.TempDir(), &calls{}
	content := fmt.Sprintf(`{"generation": 5, "uid": "u-1", "shares": {%q: {"state": "Serve", "epoch": 7}}}`, orders)
	if err := os.WriteFile(filepath.Join(folder, "assignment"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	c.run(t, Config{URLs: []string{"http://127.0.0.1:1"}, Folder: folder, Grace: 100 * time.Millisecond})
	c.expect(t, "prepare serve")
}

func TestAnotherReplicaIsAskedWhereOneIsGone(t *testing.T) {
	s, c := newScheduler(t), &calls{}
	c.run(t, Config{URLs: []string{"http://127.0.0.1:1", s.URL}})
	s.tell(orders, &Told{State: Serve, VReplicas: 2, Epoch: 7})
	s.serving()
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	serve := func(context.Context, *Share) error { return nil }
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	for said, config := range map[string]Config{
		"needs OnServe":       {URLs: []string{"http://x"}},
		"needs URLs":          {OnServe: serve},
		"is no URL":           {OnServe: serve, URLs: []string{"ftp://x"}},
		"https:// URLs only,": {OnServe: serve, URLs: []string{"http://x"}, Folder: folder},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%v, want %q", err, said)
		}
	}
}
