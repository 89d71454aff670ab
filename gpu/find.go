package gpu

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// MaxNameBytes bounds the names that Find accepts: a whole UUID with its prefix.
const MaxNameBytes = 40

// The patterns are compiled when first used, because otherwise every start of
// the program would pay for them.
var (
	uuidName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(GPU|MIG)-[0-9a-f-]{1,36}$`) })
	// The spellings of nvidia-smi (eight digits of domain), the kernel (four or more)
	// and lspci (none), with or without the function.
	pciName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?$`)
	})
)

// CheckName refuses a name that cannot refer to a GPU on any host. Valid names
// are an index, a UUID or the first part of one, and a PCI address.
func CheckName(name string) error {
	_, err := matcher(name)
	return err
}

// Find returns the named GPU. The name is its index as in Devices; its UUID (GPU-..., or
// MIG-... for a MIG instance) or a unique prefix of the UUID, as in CUDA_VISIBLE_DEVICES;
// or its PCI address, in which domain and function may be omitted if they are 0. Case does
// not matter. The error is a *ProbeError with the reason BadDevice that lists the GPUs.
func Find(devices []Device, name string) (Device, error) {
	matches, err := matcher(name)
	if err != nil {
		return Device{}, &ProbeError{Reason: BadDevice, Detail: err.Error()}
	}
	var found []Device
	for _, d := range devices {
		if matches(d) {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Device{}, &ProbeError{Reason: BadDevice, Detail: fmt.Sprintf("%s are several GPUs: %s", name, listed(found))}
	}
	return Device{}, &ProbeError{
		Reason: BadDevice,
		Detail: fmt.Sprintf("there is no GPU %s, only %s", name, listed(devices)),
		Hint:   "CUDA_VISIBLE_DEVICES hides GPUs from a process, and containers and services may have no device files of some",
	}
}

// matcher parses a name.
func matcher(name string) (func(Device) bool, error) {
	if len(name) > MaxNameBytes {
		return nil, errors.New("the name of the GPU is too long")
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return func(d Device) bool { return d.Index == int(n) }, nil
	}
	if prefix, rest, ok := strings.Cut(name, "-"); ok {
		uuid := strings.ToUpper(prefix) + "-" + strings.ToLower(rest)
		if uuidName().MatchString(uuid) {
			return func(d Device) bool { return strings.HasPrefix(d.UUID, uuid) }, nil
		}
	}
	if address, ok := pciNumber(name); ok {
		return func(d Device) bool {
			at, ok := pciNumber(d.PCIAddress)
			return ok && at == address
		}, nil
	}
	return nil, fmt.Errorf("%q is not an index, UUID (GPU-... or MIG-...) or PCI address of a GPU", name)
}

// pciNumber returns a PCI address as a number, independent of its spelling.
func pciNumber(address string) (number uint64, ok bool) {
	parts := pciName().FindStringSubmatch(strings.ToLower(address))
	if parts == nil {
		return 0, false
	}
	for _, part := range parts[1:] {
		n := uint64(0)
		if part != "" {
			n, _ = strconv.ParseUint(part, 16, 32) // the expression only matches hexadecimal digits
		}
		number = number<<8 | n
	}
	return number, true
}

// listed lists GPUs with each of the names that Find accepts.
func listed(devices []Device) string {
	const most = 16
	var names []string
	for _, d := range devices[:min(len(devices), most)] {
		text := strconv.Itoa(d.Index)
		switch {
		case d.UUID != "":
			text += " (" + d.PCIAddress + ", " + d.UUID + ")"
		case d.PCIAddress != "":
			text += " (" + d.PCIAddress + ")"
		}
		names = append(names, text)
	}
	if len(devices) > most {
		names = append(names, fmt.Sprintf("and %d more", len(devices)-most))
	}
	return strings.Join(names, ", ")
}
