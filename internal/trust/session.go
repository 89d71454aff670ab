package trust

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"

	"github.com/flynn/noise"
)

// TokenBytes is the length of a join token.
const TokenBytes = 16

// Session is the result of a handshake at both ends: the root of all keys of
// one session, which no two sessions share. It is safe for concurrent use.
type Session struct {
	client bool
	root   []byte
}

// newSession takes the two keys of Noise's Split, the client's first. Those
// keys seal nothing themselves: a separate key for each use is derived from
// them (RFC 5869), bound to the handshake's transcript.
func newSession(client bool, fromClient, fromServer *noise.CipherState, transcript []byte) (*Session, error) {
	if fromClient == nil || fromServer == nil {
		return nil, fmt.Errorf("%w: the handshake is not complete", ErrRefused)
	}
	a, b := fromClient.UnsafeKey(), fromServer.UnsafeKey()
	root, err := hkdf.Extract(sha256.New, append(a[:], b[:]...), transcript)
	if err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	return &Session{client: client, root: root}, nil
}

// derive derives n bytes for one use. The label and the context that follows it
// identify the use; each label has a fixed length of context.
func (s *Session) derive(label string, context []byte, n int) []byte {
	b, err := hkdf.Expand(sha256.New, s.root, "gdrcp 2 "+label+"\x00"+string(context), n)
	if err != nil {
		panic("trust: " + err.Error()) // only if HKDF does not support the length, a constant of this package
	}
	return b
}

func (s *Session) aead(label string, context []byte) cipher.AEAD {
	block, err := aes.NewCipher(s.derive(label, context, 32))
	if err != nil {
		panic("trust: " + err.Error()) // only if AES does not support the length of the key
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic("trust: " + err.Error())
	}
	return gcm
}

// Lane identifies one queue pair of a session. Another attempt to create the
// queue pair has another epoch.
type Lane struct {
	Rail, QP uint8
	Epoch    uint16
}

func (l Lane) context() []byte { return []byte{l.Rail, l.QP, byte(l.Epoch), byte(l.Epoch >> 8)} }

// Token returns the token with which a connection request joins the session as
// that queue pair. The server must accept a token only once.
func (s *Session) Token(l Lane) (t [TokenBytes]byte) {
	copy(t[:], s.derive("join", l.context(), TokenBytes))
	return t
}

// Admits compares a token with the lane's in constant time.
func (s *Session) Admits(l Lane, token [TokenBytes]byte) bool {
	own := s.Token(l)
	return subtle.ConstantTimeCompare(own[:], token[:]) == 1
}

// Door returns the seals for the messages that follow the handshake on its queue pair.
func (s *Session) Door() (*Sealer, *Opener) { return s.pair("door", nil) }

// Messages returns the seals of a lane's messages.
func (s *Session) Messages(l Lane) (*Sealer, *Opener) { return s.pair("messages", l.context()) }

func (s *Session) pair(label string, context []byte) (*Sealer, *Opener) {
	client, server := s.aead(label+" of the client", context), s.aead(label+" of the server", context)
	if !s.client {
		client, server = server, client
	}
	return &Sealer{aead: client}, &Opener{aead: server}
}

// Chunks returns the seals of the chunks that this end sends (mine), or of
// those that the peer sends.
func (s *Session) Chunks(mine bool) *Chunks {
	by := " of the server"
	if mine == s.client {
		by = " of the client"
	}
	return &Chunks{header: s.aead("headers"+by, nil), payload: s.aead("payloads"+by, nil)}
}
