package adapter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vreplica.dev/scheduler/adapter"
	"vreplica.dev/scheduler/adapter/adaptertest"
)

const orders = "team-a/orders"

// calls notes the callbacks.
type calls struct {
	mu     sync.Mutex
	made   []string
	shares []*adapter.Share
	fails  int
}

func (c *calls) named(name string) adapter.Callback {
	return func(_ context.Context, share *adapter.Share) error {
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

func (c *calls) share() *adapter.Share {
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
func (c *calls) run(t *testing.T, config adapter.Config) (end func() error) {
	config.OnPrepare, config.OnServe = c.named("prepare"), c.named("serve")
	config.OnDrain, config.OnStop = c.named("drain"), c.named("stop")
	if config.Report == nil {
		config.Report = func(format string, arguments ...any) { t.Logf(format, arguments...) }
	}
	if config.Folder == "" {
		config.Folder = t.TempDir()
	}
	made, err := adapter.New(config)
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
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Prepare, VReplicas: 2, Epoch: 7})
	pod.Ready(orders)
	c.expect(t, "prepare")
	if c.share().StillMine(7) {
		t.Error("a share that is prepared is not mine yet")
	}
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	if share := c.share(); !share.StillMine(7) || share.StillMine(6) {
		t.Error("a share that is served is mine, under its epoch")
	}
	pod.Tell(orders, adapter.Told{State: adapter.Drain, VReplicas: 2, Epoch: 7, Deadline: time.Now().Add(time.Minute)})
	pod.Drained(orders)
	if c.share().StillMine(7) {
		t.Error("a share that is drained is not mine")
	}
	pod.Remove(orders)
	c.expect(t, "prepare serve drain stop")
}

func TestAShareThatComesBackAfterItsDrainIsServedUnderItsNewEpoch(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	pod.Tell(orders, adapter.Told{State: adapter.Drain, VReplicas: 2, Epoch: 7})
	pod.Drained(orders)
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 8})
	pod.Serving(orders)
	c.expect(t, "prepare serve drain prepare serve")
	if share := c.share(); share.StillMine(7) || !share.StillMine(8) {
		t.Error("only the new epoch is mine")
	}
}

func TestACallbackThatFailsIsCalledAgain(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{fails: 1}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	c.expect(t, "prepare prepare serve")
}

func TestACallbackThatFailsAgainAndAgainIsCalledLessOften(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{fails: 1_000_000}
	c.run(t, adapter.Config{URLs: []string{pod.URL}, Grace: 100 * time.Millisecond})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Until("busy", func(said adaptertest.Acknowledgement) bool { return slices.Contains(said.Busy, orders) })
	time.Sleep(500 * time.Millisecond)
	c.expect(t, "prepare")
}

func TestAnOldGenerationAndAnotherPodsChangeNothing(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	pod.Send(`{"generation": 1, "uid": "uid-of-worker-0", "shares": {}}`)
	pod.Send(`{"generation": 999, "uid": "u-2", "shares": {}}`)
	pod.Send(`{"generation": 999, "uid": "uid-of-worker-0", "shares": {"a/b": {"state": "Dance"}}}`)
	pod.Send(`no json`)
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 3, Epoch: 7})
	pod.Serving(orders)
	c.expect(t, "prepare serve serve")
}

func TestTheEndDrainsAndSaysSo(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{}
	end := c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	if err := end(); err != nil {
		t.Error(err)
	}
	c.expect(t, "prepare serve drain stop")
	pod.Drained(orders)
}

func TestWhatIsRefusedIsSaidAgain(t *testing.T) {
	service := adaptertest.New(t)
	pod, c := service.Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	made := "prepare serve"
	for vreplicas, status := range []int{503, 429, 500} {
		service.Fail(status)
		pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: vreplicas + 3, Epoch: 7})
		made += " serve"
		c.expect(t, made)
		service.Fail(0)
		pod.Serving(orders)
	}
}

func TestAShareWithoutDrainIsStoppedWhenItsDeadlineIsOver(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	c.mu.Lock()
	c.fails = 1
	c.mu.Unlock()
	pod.Tell(orders, adapter.Told{State: adapter.Drain, VReplicas: 2, Epoch: 7, Deadline: time.Now().Add(300 * time.Millisecond)})
	c.expect(t, "prepare serve drain stop")
	pod.Drained(orders)
}

func TestAnExpiredLeaseStopsWhatIsServedAndAnAnswerBringsItBack(t *testing.T) {
	service := adaptertest.NewExclusive(t, time.Second)
	pod, c := service.Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	share := c.share()
	service.Fail(503)
	for until := time.Now().Add(1200 * time.Millisecond); time.Now().Before(until) && share.StillMine(7); {
		time.Sleep(time.Millisecond)
	}
	if share.StillMine(7) {
		t.Error("the lease has run out")
	}
	c.expect(t, "prepare serve stop prepare")
	service.Fail(0)
	pod.Serving(orders)
	c.expect(t, "prepare serve stop prepare serve")
	if share.StillMine(7) || !c.share().StillMine(7) {
		t.Error("it is another share now")
	}
}

func TestAPodWithoutALeaseAsksForItsAssignmentSeveralTimesALease(t *testing.T) {
	service, refused := adaptertest.NewExclusive(t, 600*time.Millisecond), make(chan string, 100)
	pod, c := service.Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}, Report: func(format string, _ ...any) {
		if strings.HasPrefix(format, "no assignments") {
			refused <- format
		}
	}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	service.Fail(503)
	service.Cut()
	limit := time.After(5 * time.Second)
	for range 12 {
		select {
		case <-refused:
		case <-limit:
			t.Fatal("it does no work until it is answered, and waits that double come to ten seconds")
		}
	}
}

func TestTheFileCountsWhileNoReplicaAnswers(t *testing.T) {
	folder, c := t.TempDir(), &calls{}
	pod := adaptertest.New(t).Pod("worker-0")
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	if err := os.WriteFile(filepath.Join(folder, "assignment"), pod.Document(), 0o600); err != nil {
		t.Fatal(err)
	}
	c.run(t, adapter.Config{URLs: []string{"http://127.0.0.1:1"}, Folder: folder, Grace: 100 * time.Millisecond})
	c.expect(t, "prepare serve")
}

func TestWhatTheServiceSendsReplacesWhatAFileSaidOfAnotherPod(t *testing.T) {
	folder, c := t.TempDir(), &calls{}
	other := `{"generation": 700, "uid": "u-2", "shares": {"a/b": {"state": "Serve", "vreplicas": 1, "epoch": 1}}}`
	if err := os.WriteFile(filepath.Join(folder, "assignment"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	service := adaptertest.New(t)
	pod := service.Pod("worker-0")
	service.Fail(503)
	c.run(t, adapter.Config{URLs: []string{pod.URL}, Folder: folder})
	c.expect(t, "prepare serve")
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	service.Fail(0)
	pod.Serving(orders)
	if key := c.share().Key; key != orders && key != "a/b" {
		t.Errorf("it serves %s", key)
	}
}

// goesOn tells the pod of a lease of half a second, and expects that it serves for so long.
func (c *calls) goesOn(t *testing.T, pod *adaptertest.Pod, within time.Duration, why string) {
	t.Helper()
	pod.Send(`{"generation": 999, "uid": "uid-of-worker-0", "leaseSeconds": 0.5, "shares": ` +
		`{"team-a/orders": {"state": "Serve", "vreplicas": 2, "epoch": 7}}}`)
	for until := time.Now().Add(within); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if !c.share().StillMine(7) {
			t.Fatal(why)
		}
	}
}

func TestALeaseThatIsMadeShorterStopsNothingBeforeTheNextAcknowledgement(t *testing.T) {
	pod, c := adaptertest.NewExclusive(t, 3*time.Second).Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	time.Sleep(800 * time.Millisecond)
	c.goesOn(t, pod, 200*time.Millisecond, "the longer lease has not run out")
}

func TestAPoolThatBecomesExclusiveStopsNothingBeforeTheNextAcknowledgement(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
	time.Sleep(700 * time.Millisecond)
	c.goesOn(t, pod, 300*time.Millisecond, "the lease begins when the pod hears of it")
}

func TestAnotherReplicaIsAskedWhereOneIsGone(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{"http://127.0.0.1:1", pod.URL}})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Serving(orders)
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	serve := func(context.Context, *adapter.Share) error { return nil }
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	for said, config := range map[string]adapter.Config{
		"needs OnServe":       {URLs: []string{"http://x"}},
		"needs URLs":          {OnServe: serve},
		"is no URL":           {OnServe: serve, URLs: []string{"ftp://x"}},
		"https:// URLs only,": {OnServe: serve, URLs: []string{"http://x"}, Folder: folder},
	} {
		if _, err := adapter.New(config); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%v, want %q", err, said)
		}
	}
}

func TestAShareHasTheIndexesThatItIsToldAndIsServedAnewWhenTheyChange(t *testing.T) {
	pod, c := adaptertest.New(t).Pod("worker-0"), &calls{}
	c.run(t, adapter.Config{URLs: []string{pod.URL}})
	told := adapter.Told{State: adapter.Serve, VReplicas: 3, Of: 8, Indexes: "0-1,5", Epoch: 7}
	pod.Tell(orders, told)
	pod.Serving(orders)
	if found := slices.Collect(c.share().Told().Indexes.All()); !slices.Equal(found, []int{0, 1, 5}) {
		t.Errorf("the share has %v", found)
	}
	told.Indexes = "0-1,6"
	pod.Tell(orders, told)
	pod.Serving(orders)
	c.expect(t, "prepare serve serve")
	if found := slices.Collect(c.share().Told().Indexes.All()); !slices.Equal(found, []int{0, 1, 6}) {
		t.Errorf("the share has %v", found)
	}
}

func TestTheLoadOfAShareGoesOutWithAnAcknowledgement(t *testing.T) {
	pod := adaptertest.New(t).Pod("worker-0")
	made, err := adapter.New(adapter.Config{
		URLs:    []string{pod.URL},
		OnServe: func(context.Context, *adapter.Share) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	made.ReportLoad(map[string]float64{orders: 12.5})
	pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
	pod.Until("the load", func(said adaptertest.Acknowledgement) bool { return said.Load[orders] == 12.5 })
	if load := pod.Load(); load[orders] != 12.5 {
		t.Errorf("the load is %v", load)
	}
}

func TestLoadThatAReplicaIgnoresGoesToAnotherOneTheNextTime(t *testing.T) {
	var urls []string
	var pods []*adaptertest.Pod
	for replica := range 3 {
		service := adaptertest.New(t)
		if replica < 2 {
			service.IgnoreLoad()
		}
		pods = append(pods, service.Pod("worker-0"))
		urls = append(urls, pods[replica].URL)
	}
	made, err := adapter.New(adapter.Config{
		URLs:    urls,
		OnServe: func(context.Context, *adapter.Share) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	for generation := int64(1); len(pods[2].Load()) == 0; generation++ {
		if generation == 50 {
			t.Fatal("the leader never hears of the load")
		}
		made.ReportLoad(map[string]float64{orders: 12.5})
		for _, pod := range pods {
			pod.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: generation})
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestAShareMovesAsThePoolsModeHasIt(t *testing.T) {
	for mode, lease := range map[string]time.Duration{"Overlap": 0, "Exclusive": 2 * time.Second} {
		t.Run(mode, func(t *testing.T) {
			service := adaptertest.NewExclusive(t, lease)
			one, two := service.Pod("worker-0"), service.Pod("worker-1")
			from, to := &calls{}, &calls{}
			from.run(t, adapter.Config{URLs: []string{one.URL}})
			to.run(t, adapter.Config{URLs: []string{two.URL}})
			one.Tell(orders, adapter.Told{State: adapter.Serve, VReplicas: 2, Epoch: 7})
			one.Serving(orders)
			service.Move(orders, one, two)
			from.expect(t, "prepare serve drain stop")
			to.expect(t, "prepare serve")
			if from.share().StillMine(7) || !to.share().StillMine(8) {
				t.Error("the destination serves the share with the next epoch")
			}
		})
	}
}
