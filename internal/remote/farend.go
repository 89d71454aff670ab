package remote

import (
	"context"
	"errors"
	"io"
)

// Answer writes the banner for the origin, which started this program, and
// starts the conversation. The pipe is stdin and stdout, and the Mux takes
// ownership of it. ctx bounds how long Answer waits for the origin.
func Answer(ctx context.Context, pipe io.ReadWriteCloser, b Banner) (*Mux, *Conversation, error) {
	if err := WriteBanner(pipe, b); err != nil {
		return nil, nil, err
	}
	m, err := NewMux(pipe, false)
	if err != nil {
		return nil, nil, err
	}
	control, err := m.Control(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	return m, converse(control), nil
}
