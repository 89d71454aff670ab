package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"gdrcp/gpu"
	"gdrcp/rdma"
)

// sysfs is the file system in which the kernel shows how devices are connected.
const sysfs = "/sys"

// gpuDistance is the distance of a GPU from an RDMA device.
type gpuDistance struct {
	Device string        `json:"device"`
	Path   gpu.PathClass `json:"path"`
}

// gpuEvent is a GPU with its distance from each RDMA device and its nearest device.
type gpuEvent struct {
	Event string `json:"event"`
	gpu.Device
	Paths   []gpuDistance `json:"paths"`
	Nearest string        `json:"nearest,omitempty"`
}

// noGPUEvent reports why there is no GPU.
type noGPUEvent struct {
	Event  string `json:"event"`
	Text   string `json:"text"`
	Hint   string `json:"hint,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// gpuEvents returns the GPUs with their paths to these RDMA devices, or an error if there are none.
func (p *program) gpuEvents(devices []rdma.Device) ([]gpuEvent, error) {
	driver, err := p.gpus()
	if err != nil {
		return nil, err
	}
	var all []gpuEvent
	for _, g := range driver.Devices() {
		e := gpuEvent{Event: "gpu", Device: g, Paths: []gpuDistance{}}
		best := gpu.SYS + 1
		for _, d := range devices {
			path := gpu.PathBetween(sysfs, g.PCIAddress, d.PCIAddress)
			e.Paths = append(e.Paths, gpuDistance{d.Name, path})
			if d.Usable() && path < best {
				best, e.Nearest = path, d.Name
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// gpuDevices reports the GPUs. A host without GPUs is not an error: gdrcp needs a GPU
// only if the user asks for one.
func (p *program) gpuDevices(devices []rdma.Device, out *events) error {
	if p.gpus == nil {
		return nil
	}
	gpus, err := p.gpuEvents(devices)
	switch {
	case out != nil && err != nil:
		out.emit(noGPUEventOf(err))
	case out != nil:
		for _, g := range gpus {
			out.emit(g)
		}
	case err != nil:
		_, err := fmt.Fprintf(p.stdout, "no GPU: %s\n", lineOf(err))
		return err
	default:
		return writeGPUs(p.stdout, devices, gpus)
	}
	return nil
}

func noGPUEventOf(err error) noGPUEvent {
	e := noGPUEvent{Event: "no_gpu", Text: lineOf(err)}
	var probe *gpu.ProbeError
	if errors.As(err, &probe) {
		e.Hint, e.Reason = probe.Hint, probe.Reason.String()
	}
	return e
}

// writeGPUs writes a table with a line for each GPU, a column for its path to each RDMA
// device, and the pairs that --gpu auto would choose.
func writeGPUs(w io.Writer, devices []rdma.Device, gpus []gpuEvent) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "GPU\tNAME\tMEMORY\tBAR1 FREE\tCC\tDRIVER\tNUMA\tPCI\tUUID\tGPUDIRECT\tDMA-BUF\t")
	for _, d := range devices {
		fmt.Fprintf(t, "%s\t", d.Name)
	}
	fmt.Fprintln(t, "PROBLEM")
	for _, g := range gpus {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%d.%d\t%s\t%s\t%s\t%s\t%s\t%s\t", g.Index, orDash(g.Name), amountText(g.MemoryBytes), amountText(g.BAR1FreeBytes),
			g.ComputeMajor, g.ComputeMinor, orDash(g.DriverVersion), nodeText(g.NUMANode), orDash(g.PCIAddress), orDash(g.UUID), yesNo(g.GPUDirect), yesNo(g.DMABuf))
		for _, p := range g.Paths {
			fmt.Fprintf(t, "%s\t", p.Path)
		}
		fmt.Fprintln(t, orDash(g.Problem))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return writePairs(w, devices, gpus)
}

// writePairs writes which GPU --gpu auto chooses for each device.
func writePairs(w io.Writer, devices []rdma.Device, gpus []gpuEvent) error {
	list := make([]gpu.Device, len(gpus))
	for i, g := range gpus {
		list[i] = g.Device
	}
	var pairs []string
	for _, d := range devices {
		if g, path, ok := gpu.Nearest(sysfs, list, d.PCIAddress); ok && d.Usable() {
			pairs = append(pairs, fmt.Sprintf("%s GPU %d (%s)", d.Name, g.Index, path))
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "--gpu auto: %s\n", strings.Join(pairs, ", "))
	return err
}

func amountText(bytes int64) string {
	if bytes < 0 {
		return "-"
	}
	return bytesText(float64(bytes), 0)
}

func nodeText(node int) string {
	if node < 0 {
		return "-"
	}
	return strconv.Itoa(node)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
