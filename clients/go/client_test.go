package scheduler

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const token = "aaa.bbb.ccc"

// group is an object as a controller has it.
type group struct {
	key        NamespacedName
	vreplicas  int32
	placements []Placement
	version    string
	deleted    *time.Time
}

func (g *group) GetDeletionTimestamp() *time.Time { return g.deleted }
func (g *group) GetKey() NamespacedName           { return g.key }
func (g *group) GetVReplicas() int32              { return g.vreplicas }
func (g *group) GetPlacements() []Placement       { return g.placements }
func (g *group) GetResourceVersion() string       { return g.version }

func aGroup(vreplicas int32) *group {
	return &group{key: NamespacedName{"shop", "orders"}, vreplicas: vreplicas}
}

// service answers every request with status and body, and remembers the requests.
type service struct {
	*httptest.Server
	status  int
	body    string
	headers http.Header
	bodies  []string
}

func serving(t *testing.T, status int, body string) *service {
	t.Helper()
	it := &service{status: status, body: body}
	it.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		it.bodies, it.headers = append(it.bodies, string(content)), r.Header.Clone()
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(it.status)
		_, _ = io.WriteString(w, it.body)
	}))
	t.Cleanup(it.Close)
	return it
}

func (s *service) configured(t *testing.T) Config {
	t.Helper()
	folder := t.TempDir()
	config := Config{
		URLs:                 []string{s.URL},
		StatefulSetNamespace: "knative-eventing",
		StatefulSetName:      "kafka-source-dispatcher",
		Kind:                 "ConsumerGroup",
		Group:                "internal.kafka.eventing.knative.dev",
		TokenFile:            filepath.Join(folder, "token"),
		CAFile:               filepath.Join(folder, "ca.crt"),
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	write(t, config.CAFile, string(block))
	write(t, config.TokenFile, token+"\n")
	return config
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func made(t *testing.T, config Config) *Client {
	t.Helper()
	client, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

const placedReply = `{"placements": [{"podName": "d-0", "vreplicas": 2}, {"podName": "d-1", "vreplicas": 1}], "left": 0}`

func TestWhatThePodsHaveIsReturnedAndTheRequestSaysWhatIsPublished(t *testing.T) {
	it := serving(t, 200, placedReply)
	object := aGroup(3)
	object.version, object.placements = "12", []Placement{{"d-0", 1}, {"d-5", 0}}
	placements, err := made(t, it.configured(t)).Schedule(context.Background(), object)
	if err != nil || !reflect.DeepEqual(placements, []Placement{{"d-0", 2}, {"d-1", 1}}) {
		t.Fatal(placements, err)
	}
	var sent, wanted any
	_ = json.Unmarshal([]byte(it.bodies[0]), &sent)
	_ = json.Unmarshal([]byte(`{
		"pool": {"namespace": "knative-eventing", "name": "kafka-source-dispatcher"},
		"vpod": {"namespace": "shop", "name": "orders", "kind": "ConsumerGroup",
		         "group": "internal.kafka.eventing.knative.dev", "vreplicas": 3, "resourceVersion": "12",
		         "placements": [{"podName": "d-0", "vreplicas": 1}]}}`), &wanted)
	if !reflect.DeepEqual(sent, wanted) {
		t.Fatal(it.bodies[0])
	}
	if it.headers.Get("Authorization") != "Bearer "+token {
		t.Fatal("the token was not sent")
	}
}

func TestAnObjectThatIsBeingDeletedGivesEverythingBack(t *testing.T) {
	it := serving(t, 200, `{"placements": [], "left": 0}`)
	object, now := aGroup(0), time.Now()
	object.deleted = &now
	placements, err := made(t, it.configured(t)).Schedule(context.Background(), object)
	if err != nil || len(placements) != 0 || !strings.Contains(it.bodies[0], `"deleted":true`) {
		t.Fatal(placements, err, it.bodies)
	}
}

func TestWithoutSlotsThePlacementsComeWithTheError(t *testing.T) {
	it := serving(t, 200, `{"placements": [{"podName": "d-0", "vreplicas": 2}], "left": 5,
		"reason": "InsufficientSlots", "retryAfterSeconds": 2.5}`)
	placements, err := made(t, it.configured(t)).Schedule(context.Background(), aGroup(7))
	var short *InsufficientSlots
	if !errors.As(err, &short) || GetTotalVReplicas(placements) != 2 {
		t.Fatal(placements, err)
	}
	if *short != (InsufficientSlots{5, "InsufficientSlots", 2500 * time.Millisecond}) {
		t.Fatal(short)
	}
}

func TestEachStatusIsAnErrorOfItsKind(t *testing.T) {
	later := func(stale bool) func(error) bool {
		return func(err error) bool {
			var it *NotScheduled
			return errors.As(err, &it) && it.Stale == stale && it.RetryAfter == 7*time.Second
		}
	}
	refused := func(err error) bool {
		var it *RequestRefused
		return errors.As(err, &it)
	}
	for status, fits := range map[int]func(error) bool{
		400: refused, 401: later(false), 403: refused, 404: refused, 409: refused, 412: later(true),
		413: refused, 307: later(false), 500: later(false), 503: later(false), 504: later(false),
	} {
		it := serving(t, status, "this is\nwhy")
		_, err := made(t, it.configured(t)).Schedule(context.Background(), aGroup(1))
		if !fits(err) || !strings.Contains(err.Error(), "this is why") || strings.Contains(err.Error(), token) {
			t.Errorf("%d: %#v", status, err)
		}
	}
}

func TestAReplyThatCannotBeReadIsAskedForAgain(t *testing.T) {
	for _, body := range []string{"", "{", "[]", "{}", `{"placements": 3}`, strings.Repeat(" ", replyBytesMax+1)} {
		it := serving(t, 200, body)
		_, err := made(t, it.configured(t)).Schedule(context.Background(), aGroup(1))
		var later *NotScheduled
		if !errors.As(err, &later) || later.RetryAfter <= 0 {
			t.Errorf("%.20q: %v", body, err)
		}
	}
}

func TestOfAllAddressesOfANameTheOneThatLeadsIsFoundAndAskedFirstFromThenOn(t *testing.T) {
	leader := serving(t, 200, placedReply)
	config := leader.configured(t)
	where, _ := url.Parse(leader.URL)
	follower := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this replica does not lead", http.StatusServiceUnavailable)
	}))
	listener, err := net.Listen("tcp", "127.0.0.2:"+where.Port())
	if err != nil {
		t.Skip("there is no second loopback address: ", err)
	}
	asked := 0
	follower.Listener, follower.TLS = listener, leader.TLS.Clone()
	follower.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateActive {
			asked++
		}
	}
	follower.StartTLS()
	defer follower.Close()
	// The test's certificate is for this name.
	config.URLs = []string{"https://example.com:" + where.Port()}
	client := made(t, config)
	client.replicas.Lookup = func(context.Context, string) ([]string, error) {
		return []string{"127.0.0.2", "127.0.0.1"}, nil
	}
	for range 3 {
		if _, err := client.Schedule(context.Background(), aGroup(3)); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Fatal("the follower was asked", asked, "times")
	}
}

func TestACertificateOfAnotherNameOrAuthorityIsNotTrusted(t *testing.T) {
	it := serving(t, 200, placedReply)
	config := it.configured(t)
	where, _ := url.Parse(it.URL)
	other := config
	other.URLs = []string{"https://other.example:" + where.Port()}
	client := made(t, other)
	client.replicas.Lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	if _, err := client.Schedule(context.Background(), aGroup(1)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Fatal(err)
	}
	config.CAFile = ""
	if _, err := made(t, config).Schedule(context.Background(), aGroup(1)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Fatal(err)
	}
	if len(it.bodies) != 0 {
		t.Fatal("something was sent")
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	it := serving(t, 200, placedReply)
	config := it.configured(t)
	authority, _ := os.ReadFile(config.CAFile)
	write(t, config.CAFile, "none")
	write(t, config.TokenFile, "")
	client := made(t, config)
	for _, step := range []struct{ says, file, content string }{
		{"there is no token", config.TokenFile, "a\nb"},
		{"is no token", config.TokenFile, "second"},
		{"there is no certificate", config.CAFile, string(authority)},
	} {
		_, err := client.Schedule(context.Background(), aGroup(1))
		if err == nil || !strings.Contains(err.Error(), step.says) {
			t.Fatal(step.says, err)
		}
		write(t, step.file, step.content)
	}
	if _, err := client.Schedule(context.Background(), aGroup(1)); err != nil {
		t.Fatal(err)
	}
	if it.headers.Get("Authorization") != "Bearer second" {
		t.Fatal(it.headers)
	}
}

// selfSigned returns a certificate for loopback that is its own authority, and it as PEM.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, string(block)
}

func TestAChangeOfAuthorityNeedsNoRestart(t *testing.T) {
	before, beforePEM := selfSigned(t)
	after, afterPEM := selfSigned(t)
	var served atomic.Pointer[tls.Certificate]
	it := &service{status: 200, body: placedReply}
	it.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, it.body)
	}))
	it.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return served.Load(), nil
	}}
	it.Config.ErrorLog = log.New(io.Discard, "", 0)
	it.StartTLS()
	t.Cleanup(it.Close)
	// httptest's own certificate goes before GetCertificate otherwise.
	it.TLS.Certificates = nil
	config := it.configured(t)
	client := made(t, config)
	for index, step := range []struct {
		file   string
		served *tls.Certificate
		works  bool
	}{
		{beforePEM, &before, true},
		{beforePEM + afterPEM, &before, true},
		{beforePEM + afterPEM, &after, true},
		{afterPEM, &after, true},
		{afterPEM, &before, false},
	} {
		write(t, config.CAFile, step.file)
		served.Store(step.served)
		it.CloseClientConnections()
		if _, err := client.Schedule(context.Background(), aGroup(3)); (err == nil) != step.works {
			t.Fatal(index, err)
		}
	}
}

func TestAConnectionThatTheServerHasClosedIsNoError(t *testing.T) {
	it := serving(t, 200, placedReply)
	client := made(t, it.configured(t))
	for index := 0; index < 200; index++ {
		if _, err := client.Schedule(context.Background(), aGroup(3)); err != nil {
			t.Fatal(index, err)
		}
		it.CloseClientConnections()
	}
	if _, sent := it.headers["Idempotency-Key"]; sent {
		t.Fatal(it.headers)
	}
}

func TestWhatCannotWorkIsRefusedAtOnce(t *testing.T) {
	it := serving(t, 200, placedReply)
	for name, change := range map[string]func(*Config){
		"no URL":           func(c *Config) { c.URLs = nil },
		"no host":          func(c *Config) { c.URLs = []string{"https://"} },
		"token in clear":   func(c *Config) { c.URLs = []string{"http://127.0.0.1:1"} },
		"no pool":          func(c *Config) { c.StatefulSetName = "" },
		"no kind":          func(c *Config) { c.Kind = "" },
		"half of the pair": func(c *Config) { c.ClientCertFile = "a" },
	} {
		config := it.configured(t)
		change(&config)
		if _, err := New(config); err == nil {
			t.Error(name)
		}
	}
}

func TestTheContextEndsACall(t *testing.T) {
	it := serving(t, 200, placedReply)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := made(t, it.configured(t)).Schedule(ctx, aGroup(1)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestReservedIsWhatTheLedgersHoldForThisKind(t *testing.T) {
	it := serving(t, 200, `{"pools": [{"name": "knative-eventing/kafka-source-dispatcher", "found": true, "podList": [
		{"name": "d-0", "placements": {"shop/orders@consumergroup.internal.kafka.eventing.knative.dev": 2, "shop/orders@broker.x.dev": 1}},
		{"name": "d-1", "placements": {"shop/orders@consumergroup.internal.kafka.eventing.knative.dev": 1, "shop/v": 4}}]}]}`)
	reserved, err := made(t, it.configured(t)).Reserved(context.Background())
	wanted := map[NamespacedName]map[string]int32{{"shop", "orders"}: {"d-0": 2, "d-1": 1}}
	if err != nil || !reflect.DeepEqual(reserved, wanted) {
		t.Fatal(reserved, err)
	}
	it.body = `{"pools": []}`
	var refused *RequestRefused
	if _, err := made(t, it.configured(t)).Reserved(context.Background()); !errors.As(err, &refused) {
		t.Fatal(err)
	}
}

func TestRefreshEnqueuesWhatHasMovedAndNothingElse(t *testing.T) {
	it := serving(t, 200, placedReply)
	client := made(t, it.configured(t))
	moved, settled, going := aGroup(3), aGroup(3), aGroup(3)
	settled.key.Name, settled.placements = "settled", []Placement{{"d-1", 1}, {"d-0", 2}}
	now := time.Now()
	going.key.Name, going.deleted = "going", &now
	var enqueued []NamespacedName
	list := func() ([]VPod, error) { return []VPod{moved, settled, going}, nil }
	fine := func(key NamespacedName, err error) { t.Fatal(key, err) }
	client.refreshOnce(context.Background(), list, func(key NamespacedName) { enqueued = append(enqueued, key) }, fine)
	if len(it.bodies) != 2 || !reflect.DeepEqual(enqueued, []NamespacedName{moved.key}) {
		t.Fatal(len(it.bodies), enqueued)
	}
}

func TestRefreshTellsWhatFailsAndEndsTheRoundWhereItWouldFailForAll(t *testing.T) {
	first, second := aGroup(3), aGroup(3)
	second.key.Name = "second"
	for _, row := range []struct {
		status int
		asked  int
	}{{503, 1}, {400, 2}, {413, 2}, {403, 1}, {404, 1}, {409, 1}} {
		it := serving(t, row.status, `{"error":"no"}`)
		client := made(t, it.configured(t))
		var told []NamespacedName
		failed := func(key NamespacedName, err error) {
			var later *NotScheduled
			var refused *RequestRefused
			if !errors.As(err, &later) && !errors.As(err, &refused) {
				t.Error(row.status, err)
			}
			told = append(told, key)
		}
		list := func() ([]VPod, error) { return []VPod{first, second}, nil }
		client.refreshOnce(context.Background(), list, func(NamespacedName) { t.Error("nothing is known") }, failed)
		want := []NamespacedName{first.key, second.key}[:row.asked]
		if len(it.bodies) != row.asked || !reflect.DeepEqual(told, want) {
			t.Error(row.status, len(it.bodies), told)
		}
	}
}

func TestRefreshTellsWhatTheListerReturns(t *testing.T) {
	it := serving(t, 200, placedReply)
	client := made(t, it.configured(t))
	notSynced := errors.New("not synced")
	failing := func() ([]VPod, error) { return nil, notSynced }
	var told []error
	failed := func(_ NamespacedName, err error) { told = append(told, err) }
	client.refreshOnce(context.Background(), failing, func(NamespacedName) { t.Error("nothing is listed") }, failed)
	if len(it.bodies) != 0 || !reflect.DeepEqual(told, []error{notSynced}) {
		t.Fatal(len(it.bodies), told)
	}
}

func TestRefreshSaysNothingOfAListThatLagsBehind(t *testing.T) {
	it := serving(t, 412, `{"error":"older"}`)
	client := made(t, it.configured(t))
	list := func() ([]VPod, error) { return []VPod{aGroup(3), aGroup(3)}, nil }
	client.refreshOnce(context.Background(), list,
		func(NamespacedName) { t.Error("nothing is known") },
		func(key NamespacedName, err error) { t.Error(key, err) })
	if len(it.bodies) != 2 {
		t.Fatal(len(it.bodies))
	}
}
