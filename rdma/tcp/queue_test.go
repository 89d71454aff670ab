package tcp

import (
	"io"
	"net"
	"testing"

	"gdrcp/rdma"
)

// TestSentLeavesReusedPlaces: a Read may be answered and reported, and its place reused by
// another work request, before the writer has noted that it was sent.
func TestSentLeavesReusedPlaces(t *testing.T) {
	q := newSendQueue(1, 16)
	q.push(&rdma.WR{Op: rdma.OpRead}, nil)
	q.took()
	q.readDone()
	q.retired++
	q.push(&rdma.WR{Op: rdma.OpSend, Msg: []byte("later")}, nil)
	q.sent(0, 1)
	if e := q.at(1); e.done || string(e.msg) != "later" || len(q.freeMsgs) > 0 {
		t.Errorf("what waits for the writer is %+v, and %d buffers are free", *e, len(q.freeMsgs))
	}
	q.took()
	q.sent(1, 2)
	if e := q.at(1); !e.done || e.msg != nil {
		t.Errorf("what was sent is %+v", *e)
	}
}

// TestRefusalsAreBounded: beyond the bound a connection is closed without an answer.
func TestRefusalsAreBounded(t *testing.T) {
	l := listen(t).(*listener)
	for range cap(l.refusals) {
		l.refusals <- struct{}{}
	}
	sock, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	older := encodePreface(nil)
	older[8]++
	if _, err := sock.Write(older[:]); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(sock); len(answer) > 0 {
		t.Errorf("answered %x while %d refusals are under way", answer, cap(l.refusals))
	}
	for range cap(l.refusals) {
		<-l.refusals
	}
}
