//go:build linux && cgo

package gpu

import (
	"reflect"
	"testing"
	"time"
)

// A process that is stopped (SIGSTOP, a frozen cgroup, a paused virtual machine) between
// the driver's answer and reading the clock has not waited: the GPU finished long ago.
func TestStoppedProcessIsNoHang(t *testing.T) {
	c := useFake(t)
	poll := reflect.ValueOf(c.poll)
	asked := 0
	// A test file cannot name C.int, so it uses reflection.
	query := reflect.MakeFunc(poll.Type().In(4), func([]reflect.Value) []reflect.Value {
		answer := reflect.New(poll.Type().In(4).Out(0)).Elem()
		if asked++; asked == 1 {
			answer.SetInt(codeNotReady)
			time.Sleep(2 * patienceTick) // the stop
		}
		return []reflect.Value{answer}
	})
	got := poll.Call([]reflect.Value{
		reflect.ValueOf(t.Context()), reflect.ValueOf(3 * patienceTick / 2), reflect.ValueOf("wait for a stream"),
		reflect.Zero(poll.Type().In(3)), query,
	})
	if err, _ := got[0].Interface().(error); err != nil {
		t.Errorf("asked %d times: %v", asked, err)
	}
	if err := c.Lost(); err != nil {
		t.Errorf("and no GPU can be used any more: %v", err)
	}
}

// A poll may take long, for example if the goroutine is locked to a thread and yields:
// then the wait polls less often, and sleeps as soon as with quick polls.
func TestSlowLooksAreFew(t *testing.T) {
	c := useFake(t)
	poll := reflect.ValueOf(c.poll)
	looks, asked := 0, 0
	query := reflect.MakeFunc(poll.Type().In(4), func([]reflect.Value) []reflect.Value {
		asked++
		return []reflect.Value{reflect.Zero(poll.Type().In(4).Out(0))}
	})
	glance := func() bool {
		looks++
		time.Sleep(spinTime)
		return false
	}
	got := poll.Call([]reflect.Value{
		reflect.ValueOf(t.Context()), reflect.ValueOf(patience), reflect.ValueOf("wait for a mark"), reflect.ValueOf(glance), query,
	})
	if err, _ := got[0].Interface().(error); err != nil || asked != 1 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	if looks > 2 {
		t.Errorf("%d looks of %v each before the driver was asked, want 2", looks, spinTime)
	}
}
