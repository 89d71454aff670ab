package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/rdma"

	"github.com/urfave/cli/v2"
)

func (p *program) devicesCommand() *cli.Command {
	asJSON := false
	return &cli.Command{
		Name: "devices", Usage: "list RDMA devices and GPUs", ArgsUsage: "[--json]",
		Description: "Lists the RDMA devices, or says why there are none, and the GPUs with how far each is from each device (PIX or PXB: by\n" +
			"PCIe switches only; PHB: through the processor; SYS: through two). Exit code 5 if no RDMA device can be used.",
		Flags:  about(topicOutput, &cli.BoolFlag{Name: "json", Usage: "print events on standard output, as JSON, one a line", Destination: &asJSON}),
		Action: action(func(_ context.Context, operands []string) error { return p.devices(operands, asJSON) }),
	}
}

type deviceEvent struct {
	Event string `json:"event"`
	rdma.Device
}

func (p *program) devices(operands []string, asJSON bool) error {
	if len(operands) > 0 {
		return args.UsageErrorf("gdrcp devices takes no operand, and got %s (a file of the name devices is ./devices)", args.Quote(operands[0]))
	}
	p.onlyPrints = true
	devices, err := p.verbs.Devices()
	if err == nil {
		err = firstProblem(devices)
	}
	if asJSON {
		out := newEvents(p.stdout)
		for _, d := range devices {
			out.emit(deviceEvent{"device", d})
		}
		return errors.Join(p.gpuDevices(devices, out), err)
	}
	if len(devices) > 0 {
		if err := writeDevices(p.stdout, devices); err != nil {
			return err
		}
	}
	return errors.Join(p.gpuDevices(devices, nil), err)
}

// firstProblem returns an error from a list of devices if none of them is usable.
func firstProblem(devices []rdma.Device) error {
	var problem error
	for _, d := range devices {
		if d.Usable() {
			return nil
		}
		if problem == nil {
			problem = fmt.Errorf("no usable RDMA device: %w", d.Err())
		}
	}
	return problem
}

// writeDevices writes a table with a line for each port.
func writeDevices(w io.Writer, devices []rdma.Device) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DEVICE\tPORT\tLINK LAYER\tTRANSPORT\tSTATE\tRATE\tMTU\tNETDEV\tNUMA\tPCI\tDMA-BUF\tADDRESSES\tPROBLEM")
	for _, d := range devices {
		if len(d.Ports) == 0 {
			fmt.Fprintf(t, "%s\t-\t-\t%s\t-\t-\t-\t-\t%s\t-\t%s\n", d.Name, d.Transport, placeText(d), orDash(d.Problem))
		}
		for _, port := range d.Ports {
			addrs := make([]string, len(port.Addrs))
			for i, a := range port.Addrs {
				addrs[i] = a.String()
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", d.Name, port.Number, orDash(port.LinkLayer), d.Transport, port.State,
				rateText(port.RateGbps), port.MTUBytes, orDash(port.NetDev), placeText(d), orDash(strings.Join(addrs, ",")), orDash(d.Problem))
		}
	}
	return t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return printable.Text(s)
}

// placeText returns the columns NUMA, PCI and DMA-BUF.
func placeText(d rdma.Device) string {
	return nodeText(d.NUMANode) + "\t" + orDash(d.PCIAddress) + "\t" + yesNo(d.DMABuf)
}

func rateText(gbps float64) string {
	if gbps <= 0 {
		return "-"
	}
	return strconv.FormatFloat(gbps, 'f', -1, 64) + " Gb/s"
}
