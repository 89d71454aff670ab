package trust

import (
	"errors"
	"fmt"

	"github.com/flynn/noise"
)

// ErrRefused is the error for a peer that did not prove that it has the key. It
// does not reveal whether the peer lacks the secret, no key has the name, or
// the messages were modified.
var ErrRefused = errors.New("the key was refused")

// Lengths of the two messages of a handshake, without the key's name: an ephemeral key and
// a tag (Noise, section 7.3: e, then an empty sealed payload).
const (
	handshakeBytes = 32 + 16
	// MaxOpeningBytes bounds the first message, with a length and a name.
	MaxOpeningBytes = 1 + MaxIDBytes + handshakeBytes
	// AnswerBytes is the length of the second message.
	AnswerBytes = handshakeBytes
)

func newState(initiator bool, prologue []byte, id string, secret Secret) (*noise.HandshakeState, error) {
	suite := noise.NewCipherSuite(noise.DH25519, noise.CipherAESGCM, noise.HashSHA256)
	// The prologue is hashed. A length separates its two parts.
	bound := append([]byte("gdrcp\x00"), byte(len(id)))
	bound = append(append(bound, id...), prologue...)
	return noise.NewHandshakeState(noise.Config{
		CipherSuite: suite, Pattern: noise.HandshakeNN, Initiator: initiator, Prologue: bound,
		PresharedKey: secret.Bytes(), PresharedKeyPlacement: 0,
	})
}

// Opening is the client's half of a handshake in progress.
type Opening struct{ state *noise.HandshakeState }

// Open begins a handshake. It returns the message for the peer: the length and
// the name of the key in the clear, then Noise's first message. prologue is
// everything that both ends have sent before, in order.
func Open(k Key, prologue []byte) (*Opening, []byte, error) {
	if err := CheckID(k.ID); err != nil {
		return nil, nil, err
	}
	state, err := newState(true, prologue, k.ID, k.Secret)
	if err != nil {
		return nil, nil, fmt.Errorf("begin the handshake: %w", err)
	}
	message := append([]byte{byte(len(k.ID))}, k.ID...)
	message, _, _, err = state.WriteMessage(message, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("begin the handshake: %w", err)
	}
	return &Opening{state}, message, nil
}

// Finish processes the peer's answer, which proves that it has the key.
func (o *Opening) Finish(answer []byte) (*Session, error) {
	payload, toPeer, fromPeer, err := o.state.ReadMessage(nil, answer)
	if err != nil || len(payload) != 0 || toPeer == nil {
		return nil, ErrRefused
	}
	return newSession(true, toPeer, fromPeer, o.state.ChannelBinding())
}

// Answer is the server's half: it processes a client's first message and creates the
// second. Only the first message that a client seals with the Session proves that it has
// the key: the handshake's first message may be a recording.
//
// find returns the secret of a name. For an unknown name it always returns the same
// secret, which nobody has: Answer does the same work with it and takes as long, so that
// names cannot be probed. The error wraps ErrRefused, with details for the log.
func Answer(message, prologue []byte, find func(id string) (Secret, bool)) (id string, answer []byte, s *Session, err error) {
	if len(message) == 0 || len(message) > MaxOpeningBytes || len(message) != 1+int(message[0])+handshakeBytes {
		return "", nil, nil, fmt.Errorf("%w: a first message of %d bytes", ErrRefused, len(message))
	}
	idBytes := int(message[0])
	id, message = string(message[1:1+idBytes]), message[1+idBytes:]
	if CheckID(id) != nil {
		return "", nil, nil, fmt.Errorf("%w: not the name of a key", ErrRefused)
	}
	secret, known := find(id)
	if secret == (Secret{}) { // all zeros, which is no secret
		return id, nil, nil, fmt.Errorf("%w: there is no secret for %q", ErrRefused, id)
	}
	state, err := newState(false, prologue, id, secret)
	if err != nil {
		return id, nil, nil, fmt.Errorf("answer the handshake: %w", err)
	}
	payload, _, _, err := state.ReadMessage(nil, message)
	if err != nil || len(payload) != 0 {
		if !known {
			return id, nil, nil, fmt.Errorf("%w: no key is named %q", ErrRefused, id)
		}
		return id, nil, nil, fmt.Errorf("%w: wrong secret for %q", ErrRefused, id)
	}
	answer, fromPeer, toPeer, err := state.WriteMessage(nil, nil)
	if err != nil {
		return id, nil, nil, fmt.Errorf("answer the handshake: %w", err)
	}
	s, err = newSession(false, fromPeer, toPeer, state.ChannelBinding())
	return id, answer, s, err
}
