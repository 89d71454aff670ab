//go:build linux && cgo

package verbs

import (
	"fmt"
	"net/netip"
	"syscall"

	"gdrcp/rdma"
)

// wcStatus explains a status of a work completion (ibv_poll_cq(3)).
type wcStatus struct {
	name string // of the constant
	text string // plain cause
	hint string // remedy, or empty
	err  error  // sentinel, or nil
	of   rdma.Fault
}

// wcFlush is the status of work that was outstanding when its queue pair
// entered the error state. It is never the cause of the error.
const wcFlush = 5

const bugHint = "a bug of gdrcp or of the device's driver: report it with the output of ibv_devinfo -v"

// wcStatuses is indexed by status.
var wcStatuses = [...]wcStatus{
	0:  {"IBV_WC_SUCCESS", "success", "", nil, rdma.FaultUnknown},
	1:  {"IBV_WC_LOC_LEN_ERR", "local length error", bugHint, nil, rdma.FaultAccess},
	2:  {"IBV_WC_LOC_QP_OP_ERR", "the device could not carry out the work request", bugHint, nil, rdma.FaultAccess},
	3:  {"IBV_WC_LOC_EEC_OP_ERR", "local EE context error", bugHint, nil, rdma.FaultDevice},
	4:  {"IBV_WC_LOC_PROT_ERR", "local memory is not accessible to the device", "check ACS and the IOMMU settings (iommu=pt) and dmesg", nil, rdma.FaultDevice},
	5:  {"IBV_WC_WR_FLUSH_ERR", "flushed after an earlier error", "", nil, rdma.FaultUnknown},
	6:  {"IBV_WC_MW_BIND_ERR", "memory window error", bugHint, nil, rdma.FaultAccess},
	7:  {"IBV_WC_BAD_RESP_ERR", "unexpected response from the peer's device", "check the firmware versions of both ends", nil, rdma.FaultPath},
	8:  {"IBV_WC_LOC_ACCESS_ERR", "local device fault while writing to memory", "see dmesg", nil, rdma.FaultDevice},
	9:  {"IBV_WC_REM_INV_REQ_ERR", "the peer's device does not take this request", "check that both ends run the same version, and the peer's log", nil, rdma.FaultAccess},
	10: {"IBV_WC_REM_ACCESS_ERR", "the peer refused the access for its key, bounds or rights", "the receiver has ended or re-registered its memory: see its log", rdma.ErrAccess, rdma.FaultAccess},
	11: {"IBV_WC_REM_OP_ERR", "the peer's device failed to carry out the request", "see the peer's log and dmesg", nil, rdma.FaultPath},
	12: {"IBV_WC_RETRY_EXC_ERR", "the peer's device stopped answering", "check that the peer runs and the link is up, and that both ends agree on MTU, VLAN and GID; UDP port 4791 must be open (RoCE)", nil, rdma.FaultPath},
	13: {"IBV_WC_RNR_RETRY_EXC_ERR", "the peer has no receive posted", "the receiver is stalled or breaks the protocol: see its log", nil, rdma.FaultAccess},
	14: {"IBV_WC_LOC_RDD_VIOL_ERR", "local RDD violation", bugHint, nil, rdma.FaultAccess},
	15: {"IBV_WC_REM_INV_RD_REQ_ERR", "the peer's device does not take this RDMA Read", bugHint, nil, rdma.FaultAccess},
	16: {"IBV_WC_REM_ABORT_ERR", "the peer's device aborted the request", "see the peer's log and dmesg", nil, rdma.FaultPath},
	17: {"IBV_WC_INV_EECN_ERR", "invalid EE context number", bugHint, nil, rdma.FaultDevice},
	18: {"IBV_WC_INV_EEC_STATE_ERR", "invalid EE context state", bugHint, nil, rdma.FaultDevice},
	19: {"IBV_WC_FATAL_ERR", "fatal error of the local device or its driver", "see dmesg", nil, rdma.FaultDevice},
	20: {"IBV_WC_RESP_TIMEOUT_ERR", "the peer's device took too long to respond", "see the peer's dmesg", nil, rdma.FaultPath},
	21: {"IBV_WC_GENERAL_ERR", "the device reports an error without saying which", "see dmesg at both ends", nil, rdma.FaultPath},
}

// completionError describes a failed completion.
func completionError(op, device string, peer netip.AddrPort, status, vendor uint32) error {
	e := &rdma.OpError{Op: op, Device: device, Peer: peer, VendorErr: vendor}
	if int(status) >= len(wcStatuses) {
		e.Status = fmt.Sprintf("unknown status %d", status)
		return e
	}
	s := wcStatuses[status]
	e.Status = s.text + " (" + s.name + ")"
	e.Hint = s.hint
	e.Err = s.err
	e.Fault = s.of
	return e
}

// eventNames is indexed by event.
var eventNames = [...]string{
	evAddrResolved:    "RDMA_CM_EVENT_ADDR_RESOLVED",
	evAddrError:       "RDMA_CM_EVENT_ADDR_ERROR",
	evRouteResolved:   "RDMA_CM_EVENT_ROUTE_RESOLVED",
	evRouteError:      "RDMA_CM_EVENT_ROUTE_ERROR",
	evConnectRequest:  "RDMA_CM_EVENT_CONNECT_REQUEST",
	evConnectResponse: "RDMA_CM_EVENT_CONNECT_RESPONSE",
	evConnectError:    "RDMA_CM_EVENT_CONNECT_ERROR",
	evUnreachable:     "RDMA_CM_EVENT_UNREACHABLE",
	evRejected:        "RDMA_CM_EVENT_REJECTED",
	evEstablished:     "RDMA_CM_EVENT_ESTABLISHED",
	evDisconnected:    "RDMA_CM_EVENT_DISCONNECTED",
	evDeviceRemoval:   "RDMA_CM_EVENT_DEVICE_REMOVAL",
	evMulticastJoin:   "RDMA_CM_EVENT_MULTICAST_JOIN",
	evMulticastError:  "RDMA_CM_EVENT_MULTICAST_ERROR",
	evAddrChange:      "RDMA_CM_EVENT_ADDR_CHANGE",
	evTimewaitExit:    "RDMA_CM_EVENT_TIMEWAIT_EXIT",
}

// eventError is the error of an operation that was ended by an event.
type eventError struct{ ev cmEvent }

func (e *eventError) Error() string {
	name := fmt.Sprintf("event %d", e.ev.kind)
	if e.ev.kind >= 0 && e.ev.kind < len(eventNames) {
		name = eventNames[e.ev.kind]
	}
	if e.ev.status == 0 {
		return name
	}
	if e.ev.kind == evRejected && e.ev.status > 0 {
		return fmt.Sprintf("%s, reason %d", name, e.ev.status)
	}
	if e.ev.status == untoldStatus {
		return name + ": librdmacm tells no reason"
	}
	return fmt.Sprintf("%s: %s", name, e.errno())
}

// untoldStatus is the status that librdmacm reports if a step of its own failed, such as
// changing a queue pair's state after the peer's answer. It is not an error number.
const untoldStatus = -1

// errno returns the status as an error number: rdma_cm reports it as a negative number.
func (e *eventError) errno() syscall.Errno {
	if e.ev.status == untoldStatus {
		return syscall.EIO
	}
	if e.ev.status < 0 {
		return syscall.Errno(-e.ev.status)
	}
	return syscall.Errno(e.ev.status)
}

// Reasons of an InfiniBand CM REJ (InfiniBand Architecture Specification,
// volume 1, 12.6.7.2).
const (
	rejNoResources      = 3
	rejTimeout          = 4
	rejInvalidServiceID = 8
	rejStale            = 10
	rejConsumer         = 28
)

// connectError converts the event that ended a connection attempt to the error
// that Dial returns.
func connectError(device string, peer netip.AddrPort, ev cmEvent) error {
	op := &rdma.OpError{Op: "connect to", Device: device, Peer: peer, Err: &eventError{ev: ev}}
	switch ev.kind {
	case evRejected:
		if code, ok := decodeReject(ev.data); ok {
			return &rdma.RejectedError{Peer: peer, Code: code}
		}
		switch ev.status {
		case rejInvalidServiceID:
			op.Status = "nobody listens there"
			op.Err = syscall.ECONNREFUSED
			op.Hint = "start gdrcp serve on the peer, and check the port"
		case rejConsumer:
			op.Err = rdma.ErrNotGdrcp
		case rejStale, rejTimeout:
			op.Hint = "the peer still holds an earlier connection: try again in some seconds"
		case rejNoResources:
			op.Hint = "the peer's device has no resources left"
		case -int(syscall.ECONNREFUSED), -int(syscall.ECONNRESET):
			// iWARP: a TCP reset. A gdrcp that refuses sends the reason as private data.
			op.Status = "nobody listens there"
			op.Err = syscall.ECONNREFUSED
			op.Hint = "start gdrcp serve on the peer, and check the port"
		}
	case evUnreachable, evConnectError:
		op.Hint = "the peer's connection manager does not answer: check that RDMA works there (`rdma link`), and the firewall (UDP 4791 for RoCE, the TCP port for iWARP)"
	case evDeviceRemoval:
		op.Hint = "the local device was removed: see dmesg"
	}
	return op
}
