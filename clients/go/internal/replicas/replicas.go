// Package replicas finds the addresses of the service, and keeps connections to them.
package replicas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	addressesMax  = 64
	fileBytesMax  = 1 << 20
	tokenBytesMax = 64 << 10
	idleTimeout   = 90 * time.Second
)

// Config says where the service is, and which files have the caller's token and certificates.
type Config struct {
	URLs                                             []string
	TokenFile, CAFile, ClientCertFile, ClientKeyFile string
	// HandshakeTimeout is that of TLS.
	HandshakeTimeout time.Duration
}

// Address is one replica: its URL by number, and the names by which the configuration knows it.
type Address struct {
	URL        string
	Host       string
	serverName string
}

// Replicas finds the service's addresses and keeps connections to them.
type Replicas struct {
	// Lookup finds the addresses of a host.
	Lookup func(ctx context.Context, host string) ([]string, error)

	config Config
	urls   []*url.URL

	mu sync.Mutex
	// last is the address that has answered last. It is asked first.
	last Address
	// clients are by server name, for the authorities and certificate in files.
	clients map[string]*http.Client
	files   tlsFiles
}

// tlsFiles has the contents of CAFile, ClientCertFile and ClientKeyFile.
type tlsFiles [3]string

// New returns the replicas of a configuration. Nothing is sent or read yet.
func New(config Config) (*Replicas, error) {
	found := &Replicas{
		config:  config,
		clients: map[string]*http.Client{},
		Lookup:  net.DefaultResolver.LookupHost,
	}
	for _, each := range config.URLs {
		parsed, err := url.Parse(strings.TrimRight(each, "/"))
		if err != nil || parsed.Hostname() == "" || (parsed.Scheme != "https" && parsed.Scheme != "http") {
			return nil, fmt.Errorf("%q is no URL of a server", each)
		}
		if parsed.Scheme != "https" && config.TokenFile != "" {
			return nil, fmt.Errorf("the token is sent to https:// URLs only, not to %q", each)
		}
		found.urls = append(found.urls, parsed)
	}
	return found, nil
}

// Addresses returns all addresses of the URLs in turn, from the one that has answered last on, and says
// which hosts are not known.
func (r *Replicas) Addresses(ctx context.Context) (found []Address, unknown []string) {
	seen := map[Address]bool{}
	for _, each := range r.urls {
		numbers := []string{each.Hostname()}
		if net.ParseIP(each.Hostname()) == nil {
			var err error
			if numbers, err = r.Lookup(ctx, each.Hostname()); err != nil {
				unknown = append(unknown, each.String()+": "+err.Error())
			}
		}
		for _, number := range numbers[:min(len(numbers), addressesMax)] {
			at := addressOf(each, number)
			if !seen[at] {
				seen[at] = true
				found = append(found, at)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for index, at := range found {
		if at == r.last {
			return slices.Concat(found[index:], found[:index]), unknown
		}
	}
	return found, unknown
}

func addressOf(each *url.URL, number string) Address {
	port := each.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[each.Scheme]
	}
	at := Address{
		URL:  each.Scheme + "://" + net.JoinHostPort(number, port) + each.Path,
		Host: each.Host,
	}
	if each.Scheme == "https" {
		at.serverName = each.Hostname()
	}
	return at
}

// Answered notes the address that is asked first from now on.
func (r *Replicas) Answered(at Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = at
}

// Client returns what to send requests with. Files that have changed end the connections that were
// made with the old ones.
func (r *Replicas) Client(at Address) (*http.Client, error) {
	var files tlsFiles
	if at.serverName != "" {
		for index, name := range []string{r.config.CAFile, r.config.ClientCertFile, r.config.ClientKeyFile} {
			content, err := readFile(name, fileBytesMax)
			if err != nil {
				return nil, err
			}
			files[index] = string(content)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.serverName != "" && files != r.files {
		for _, client := range r.clients {
			client.CloseIdleConnections()
		}
		r.clients, r.files = map[string]*http.Client{}, files
	}
	if client := r.clients[at.serverName]; client != nil {
		return client, nil
	}
	config, err := r.tls(at.serverName, files)
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		// No proxy: the token is for the service alone.
		Transport: &http.Transport{
			TLSClientConfig:     config,
			TLSHandshakeTimeout: r.config.HandshakeTimeout,
			IdleConnTimeout:     idleTimeout,
			MaxIdleConnsPerHost: 16,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r.clients[at.serverName] = client
	return client, nil
}

func (r *Replicas) tls(serverName string, files tlsFiles) (*tls.Config, error) {
	config := &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS12}
	if serverName == "" {
		return config, nil
	}
	if r.config.CAFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(files[0])) {
			return nil, fmt.Errorf("there is no certificate in %s", r.config.CAFile)
		}
	}
	if r.config.ClientCertFile != "" {
		pair, err := tls.X509KeyPair([]byte(files[1]), []byte(files[2]))
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", r.config.ClientCertFile, r.config.ClientKeyFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func readFile(name string, bytesMax int64) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, bytesMax))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	return content, nil
}

// Authorize adds the token to a request, if there is one. Its errors do not repeat the token.
func (r *Replicas) Authorize(request *http.Request) error {
	if r.config.TokenFile == "" {
		return nil
	}
	token, err := readToken(r.config.TokenFile)
	if err == nil {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return err
}

func readToken(name string) (string, error) {
	content, err := readFile(name, tokenBytesMax)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	for _, each := range token {
		if each <= ' ' || each > '~' {
			return "", errors.New("what is in " + name + " is no token")
		}
	}
	if token == "" {
		return "", errors.New("there is no token in " + name)
	}
	return token, nil
}
