// Package tlstest makes certificates for tests, new ones for each test.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// CA signs certificates.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a certificate authority that nothing trusts yet.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test CA"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	return &CA{cert: sign(t, cert, cert, key, key), key: key}
}

// Leaf says what a certificate is for. The zero Leaf is a server's at
// 127.0.0.1, or a client's, for an hour.
type Leaf struct {
	DNS     string // the name that it is for, instead of 127.0.0.1
	URI     string // such as a SPIFFE ID
	Expired bool
}

// Issue makes a certificate.
func (ca *CA) Issue(t testing.TB, l Leaf) tls.Certificate {
	t.Helper()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "test leaf"},
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if l.Expired {
		cert.NotAfter = time.Now().Add(-time.Minute)
	}
	if l.DNS != "" {
		cert.DNSNames = []string{l.DNS}
	} else {
		cert.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	if l.URI != "" {
		u, err := url.Parse(l.URI)
		require.NoError(t, err)
		cert.URIs = []*url.URL{u}
	}
	key := newKey(t)
	return tls.Certificate{Certificate: [][]byte{sign(t, cert, ca.cert, key, ca.key).Raw}, PrivateKey: key}
}

// Server returns the configuration of a server with a certificate of l.
func (ca *CA) Server(t testing.TB, l Leaf) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, l)}}
}

// Mutual is Server for one that wants certificates of this CA from its clients.
func (ca *CA) Mutual(t testing.TB, l Leaf) *tls.Config {
	cfg := ca.Server(t, l)
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	return cfg
}

// Client returns the configuration of a client that trusts this CA and shows
// the given certificates.
func (ca *CA) Client(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: ca.Pool(), Certificates: certs}
}

// Pool returns a pool with nothing but the CA.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func sign(t testing.TB, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return parsed
}
