package xfer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRetryOnEMFILE(t *testing.T) {
	stop := make(chan struct{})
	tries := 0
	n, err := retryOnEMFILE(stop, func() (int, error) {
		if tries++; tries < 3 {
			return 0, fmt.Errorf("open: %w", unix.EMFILE)
		}
		return 7, nil
	})
	if n != 7 || err != nil || tries != 3 {
		t.Errorf("%d, %v after %d tries", n, err, tries)
	}
	if _, err := retryOnEMFILE(stop, func() (int, error) { return 0, unix.EACCES }); !errors.Is(err, unix.EACCES) {
		t.Errorf("got %v", err)
	}
	close(stop)
	if _, err := retryOnEMFILE(stop, func() (int, error) { return 0, unix.ENFILE }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
