package adapter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"vreplica.dev/scheduler/internal/replicas"
)

const (
	requestTimeout = 5 * time.Second
	// idleTimeout is of a stream without a line. The service sends one each 10 s.
	idleTimeout  = 30 * time.Second
	retryFirst   = 200 * time.Millisecond
	retryLast    = 10 * time.Second
	fileAfter    = 2 * time.Second
	fileEvery    = time.Second
	pace         = 100 * time.Millisecond
	speakEvery   = 30 * time.Second
	loadEvery    = 10 * time.Second
	messageBytes = 500
)

// refused is an answer other than 200.
type refused struct {
	status     int
	retryAfter time.Duration
	body       []byte
}

func (r *refused) Error() string {
	return fmt.Sprintf("answered %d: %s", r.status, strings.Join(strings.Fields(string(r.body[:min(len(r.body), messageBytes)])), " "))
}

// service sends requests to the replicas in turn, beginning with the one that answered last.
type service struct {
	replicas *replicas.Replicas

	mu     sync.Mutex
	cut    context.CancelFunc
	heard  bool
	failed bool
}

// reconnect ends the stream that is open.
func (s *service) reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != nil {
		s.cut()
	}
}

func (s *service) note(heard, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard, s.failed = heard, s.failed || failed
}

func (s *service) state() (heard, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard, s.failed
}

// request is what one replica after the other is asked.
type request struct {
	method, path string
	body         []byte
	// limit is for each replica, until use has ended or has set the timer that it gets anew.
	limit time.Duration
	use   func(reply *http.Response, limit *time.Timer) error
}

// ask sends a request to one replica after the other, until one answers other than 5xx or 429. skip says how
// many of them are asked last.
func (s *service) ask(ctx context.Context, asked request, skip int) error {
	found, unknown := s.replicas.Addresses(ctx)
	err := fmt.Errorf("no replica is known: %s", strings.Join(unknown, "; "))
	for index := range found {
		err = s.askOne(ctx, found[(index+skip)%len(found)], asked)
		if err == nil || ctx.Err() != nil {
			return err
		}
		var answered *refused
		if errors.As(err, &answered) && answered.status < 500 && answered.status != http.StatusTooManyRequests {
			return err
		}
	}
	return err
}

func (s *service) askOne(ctx context.Context, at replicas.Address, asked request) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.AfterFunc(asked.limit, cancel)
	defer limit.Stop()
	sent, err := http.NewRequestWithContext(ctx, asked.method, at.URL+asked.path, bytes.NewReader(asked.body))
	if err != nil {
		return err
	}
	sent.Host = at.Host
	if asked.body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	if err := s.replicas.Authorize(sent); err != nil {
		return err
	}
	client, err := s.replicas.Client(at)
	if err != nil {
		return err
	}
	reply, err := client.Do(sent)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		content, _ := io.ReadAll(io.LimitReader(reply.Body, documentBytesMax))
		seconds, _ := strconv.ParseUint(reply.Header.Get("Retry-After"), 10, 16)
		return &refused{reply.StatusCode, time.Duration(seconds) * time.Second, content}
	}
	s.replicas.Answered(at)
	return asked.use(reply, limit)
}

// listen follows the assignments that the service sends.
func (a *Adapter) listen(ctx context.Context) {
	take := func(line []byte) { a.take(line, true) }
	ended := func(err error) { a.report("no assignments: %v", err) }
	atMost := func() time.Duration { return a.partOfLease(6) }
	a.service.watch(ctx, "/v1/assignment?watch=true", take, ended, atMost)
}

// watch follows streams of a path, one after the other, until ctx ends. take gets each line, and ended why a
// stream has ended. atMost limits the waits, not what the service asks for.
func (s *service) watch(
	ctx context.Context, path string, take func([]byte), ended func(error), atMost func() time.Duration,
) {
	wait := retryFirst
	for skip := 0; ctx.Err() == nil; skip++ {
		began := time.Now()
		err := s.follow(ctx, path, skip, take)
		s.note(false, true)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > retryLast {
			wait, skip = retryFirst, 0
		}
		pause := jitter(min(wait, atMost()))
		var answered *refused
		if errors.As(err, &answered) {
			pause = max(pause, min(answered.retryAfter, retryLast))
		}
		ended(err)
		sleep(ctx, pause)
		wait = min(2*wait, retryLast)
	}
}

// follow reads one stream until it ends, or says nothing for too long.
func (s *service) follow(ctx context.Context, path string, skip int, take func([]byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.cut = cancel
	s.mu.Unlock()
	read := func(reply *http.Response, silence *time.Timer) error {
		lines := bufio.NewScanner(reply.Body)
		lines.Buffer(nil, documentBytesMax)
		lines.Split(wholeLines)
		for lines.Scan() {
			silence.Reset(idleTimeout)
			if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
				take(line)
				s.note(true, false)
			}
		}
		return errors.Join(errors.New("the stream has ended"), lines.Err())
	}
	return s.ask(ctx, request{method: http.MethodGet, path: path, limit: requestTimeout, use: read}, skip)
}

// wholeLines is bufio.ScanLines without a last line that was cut off.
func wholeLines(data []byte, atEOF bool) (int, []byte, error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// readFile looks at the file that the kubelet writes while no replica answers.
func (a *Adapter) readFile(ctx context.Context) {
	var last []byte
	began := time.Now()
	for ; ctx.Err() == nil; sleep(ctx, fileEvery/10) {
		heard, failed := a.service.state()
		if heard || !failed && time.Since(began) < fileAfter {
			continue
		}
		document := fileContent(filepath.Join(a.config.Folder, "assignment"))
		if len(document) > 0 && !bytes.Equal(document, last) {
			last = document
			a.take(document, false)
		}
		sleep(ctx, fileEvery)
	}
}

func fileContent(name string) []byte {
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	content, _ := io.ReadAll(io.LimitReader(file, documentBytesMax))
	return bytes.TrimSpace(content)
}

func sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

func jitter(wait time.Duration) time.Duration {
	return wait/2 + rand.N(wait/2+1)
}
