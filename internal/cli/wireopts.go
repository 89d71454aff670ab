package cli

import (
	"fmt"
	"strconv"

	"gdrcp/internal/cli/args"
	"gdrcp/rdma"

	"github.com/urfave/cli/v2"
)

// tosVariable sets the type of service if --tos is not given.
const tosVariable = "GDRCP_TOS"

// wireOptions are the options for the packets of a session and for how their data moves
// within the host.
type wireOptions struct {
	wire rdma.Wire
	tos  *checkedValue
}

func (w *wireOptions) flags() []cli.Flag {
	w.tos = number(&w.wire.TOS, 0, rdma.MaxTOS)
	return about(topicTransport,
		checkedFlag("ack-timeout", "`N` an RDMA device sends a packet again if it is not acknowledged within 4.096 µs times 2 to the power of N: 8 to 31, as NCCL_IB_TIMEOUT ("+
			strconv.Itoa(rdma.DefaultAckTimeout)+"); not on iWARP", number(&w.wire.AckTimeout, 8, rdma.MaxAckTimeout)),
		checkedFlag("tos", "`N` the type of service or traffic class in the header of packets: 0 to 255, four times the DSCP; 0 leaves it to the system ($"+tosVariable+", else 0)", w.tos),
		checkedFlag("relaxed-ordering", "`on|off|auto` whether an RDMA device may write to this end's slots, and read from them, out of order (PCI Express relaxed ordering); "+
			"auto: where the processor is known to be faster so (auto)", ordering(&w.wire.Ordering)),
	)
}

// ordering is a value of --relaxed-ordering.
func ordering(to *rdma.Ordering) *checkedValue {
	return &checkedValue{set: func(s string) error {
		o, ok := rdma.ParseOrdering(s)
		if !ok {
			return fmt.Errorf("not one of on, off, auto")
		}
		*to = o
		return nil
	}}
}

// read returns the wire settings from the command line or the environment.
func (w *wireOptions) read(getenv func(string) string) (rdma.Wire, error) {
	if w.tos == nil || w.tos.text == "" {
		if s := getenv(tosVariable); s != "" {
			if err := number(&w.wire.TOS, 0, rdma.MaxTOS).set(s); err != nil {
				return rdma.Wire{}, args.UsageErrorf("%s is %s: %v", tosVariable, args.Quote(s), err)
			}
		}
	}
	return w.wire, nil
}

// wireText returns what -v prints about the packets, if their settings are not the system's.
func wireText(w rdma.Wire) string {
	if w.TOS == 0 {
		return ""
	}
	return fmt.Sprintf(", type of service %d", w.TOS)
}
