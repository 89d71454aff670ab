package cli

import (
	"cmp"
	"errors"

	"gdrcp/internal/cli/args"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// linkFlags returns the options about the connection of a session.
func linkFlags(o *xfer.Options, require cli.Flag) []cli.Flag {
	var imm string
	return about(topicTransport,
		checkedFlag("transport", "`auto|verbs|tcp` auto, the default, uses verbs if an RDMA device reaches the peer, else tcp, and says why",
			oneOf(&o.Transport, "auto", "verbs", "tcp")),
		require,
		checkedFlag("rails", "`N|all` rails that carry a copy at most: over RDMA devices all that reach the other end, over TCP 1; all over TCP are the addresses of HOST", railCount(&o.Rails)),
		checkedFlag("rail", "`DEV|ADDR` a local RDMA device to use, by its name or an address; may be given several times", &checkedValue{set: func(s string) error {
			if s == "" {
				return errors.New("names no device")
			}
			if o.Rail == "" {
				o.Rail = s
			} else {
				o.MoreRails = append(o.MoreRails, s)
			}
			return nil
		}}),
		&cli.StringFlag{Name: "remote-rail", Usage: "`DEV|ADDR` the RDMA device at the other end, by its name or an address there", Destination: &o.RemoteRail},
		checkedFlag("qps", "`N` queue pairs, or TCP connections, of the session: 1 to 16 (by the rate of the RDMA device: 1, 2 above 50 Gb/s, 4 above 150; over TCP up to 8 to a server far away; within this machine one for two processors, 4 at most)", number(&o.QPs, 1, xfer.MaxQPs)),
		checkedFlag("chunk-size", "`SIZE` size of a slot: so much is sent at once. 64KiB to 64MiB in steps of 64KiB (1MiB; 2MiB or 4MiB where 256 slots would not hold what the RDMA devices carry in 2 ms). "+
			"In a copy a slot holds at least one piece, which has 1MiB unless --manifest says otherwise",
			size(&o.ChunkBytes, xfer.MinChunkBytes, xfer.MaxChunkBytes, 64<<10)),
		checkedFlag("slots", "`N` slots in the ring at each end: 1 to 256; slots times chunk size is at most 1GiB (by the rate of the RDMA devices: what they carry in 5 ms; more to a server far away; at least 16)", number(&o.Slots, 1, xfer.MaxSlots)),
		onOff("encrypt", "seal all data with AES-256-GCM, not only the control messages; slots in GPU memory are then reached through host memory", &o.Encrypt),
		&cli.GenericFlag{Name: "imm", Hidden: true, Value: &checkedValue{set: func(s string) error {
			o.ForceImmSend = s == "send"
			return oneOf(&imm, "auto", "send").set(s)
		}}},
	)
}

// railCount is a number of rails, or all.
func railCount(into *int) *checkedValue {
	return &checkedValue{set: func(s string) error {
		if s == "all" {
			*into = xfer.AllRails
			return nil
		}
		return number(into, 1, xfer.MaxRails).set(s)
	}}
}

// checkRing checks the ring against its bound.
func checkRing(o *xfer.Options) error {
	slots, chunk := cmp.Or(o.Slots, xfer.DefaultSlots), cmp.Or(o.ChunkBytes, xfer.DefaultChunkBytes)
	if slots*chunk > xfer.MaxRingBytes {
		return args.UsageErrorf("%s make a ring of %s; the limit is %s", ringText(slots, chunk), sizeText(int64(slots*chunk)), sizeText(xfer.MaxRingBytes))
	}
	return nil
}
