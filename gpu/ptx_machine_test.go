//go:build linux && cgo

package gpu

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ptxKernel is an entry of a PTX file, to be run on the processor. It supports
// the subset of PTX that clang uses for blake3.cu, so that the committed
// kernels can be tested without a GPU. It shows what the instructions compute,
// but nothing about concurrency except that barriers are in the right places:
// between two of them the threads of a block run one after another.
//
// The language is described in NVIDIA's "PTX ISA". Unknown instructions are
// errors, and must be added below.
type ptxKernel struct {
	params      []string
	sharedBytes int
	code        []ptxInstruction
	names       map[string]int // names of registers; constants have registers of their own
	initial     []uint64       // values of the registers before the first instruction
	labels      map[string]int
}

type ptxInstruction struct {
	guard  int // the register that decides whether it is executed
	unless bool
	run    func(t *ptxThread)
}

type ptxThread struct {
	reg  []uint64
	next int // next instruction
	stop ptxStop
	at   *ptxBlock
}

type ptxStop uint8

const (
	ptxRuns ptxStop = iota
	ptxWaits
	ptxEnded
)

// ptxBlock is what a block of threads can access: global memory from address
// ptxBase, shared memory from 0, and the kernel's parameters.
type ptxBlock struct {
	global, shared []byte
	params         map[string]uint64
}

const (
	ptxBase     = 1 << 32
	ptxStepsMax = 1 << 20 // instructions per thread, more than any needs
	// Registers that every kernel has.
	ptxTrue, ptxZero, ptxTid, ptxCtaid = 0, 1, 2, 3
)

var (
	ptxEntry  = regexp.MustCompile(`(?s)\.entry (\w+)\((.*?)\)(.*?)\{(.*?)\n\}`)
	ptxParam  = regexp.MustCompile(`\.param \.\w+ (\w+)`)
	ptxShared = regexp.MustCompile(`\.shared \.align \d+ \.b8 (\w+)\[(\d+)\];`)
	ptxLine   = regexp.MustCompile(`^(?:@(!?)(%p\d+)\s+)?([a-z0-9._]+)\s*(.*);$`)
	ptxPlace  = regexp.MustCompile(`^\[([%$\w]+)(?:\+(\d+))?\]$`)
)

func parsePTX(text string) (map[string]*ptxKernel, error) {
	kernels := map[string]*ptxKernel{}
	for _, entry := range ptxEntry.FindAllStringSubmatch(text, -1) {
		k := &ptxKernel{
			names:   map[string]int{"": ptxTrue, "0": ptxZero, "%tid.x": ptxTid, "%ctaid.x": ptxCtaid},
			initial: []uint64{1, 0, 0, 0},
			labels:  map[string]int{},
		}
		for _, p := range ptxParam.FindAllStringSubmatch(entry[2], -1) {
			k.params = append(k.params, p[1])
		}
		if err := k.parse(entry[4]); err != nil {
			return nil, fmt.Errorf("%s: %w", entry[1], err)
		}
		kernels[entry[1]] = k
	}
	return kernels, nil
}

func (k *ptxKernel) parse(body string) error {
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if label, ok := strings.CutSuffix(line, ":"); ok {
			k.labels[label] = len(k.code)
			continue
		}
		if shared := ptxShared.FindStringSubmatch(line); shared != nil {
			k.names[shared[1]] = ptxZero
			k.sharedBytes, _ = strconv.Atoi(shared[2])
			continue
		}
		if line == "" || strings.HasPrefix(line, ".reg ") {
			continue
		}
		part := ptxLine.FindStringSubmatch(line)
		if part == nil {
			return fmt.Errorf("no instruction: %q", line)
		}
		run, err := k.instruction(part[3], ptxOperands(part[4]))
		if err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		k.code = append(k.code, ptxInstruction{k.register(part[2]), part[1] == "!", run})
	}
	return nil
}

// ptxOperands splits at commas, except within braces.
func ptxOperands(text string) (list []string) {
	if end := strings.Index(text, "}"); strings.HasPrefix(text, "{") {
		list, text = append(list, text[:end+1]), strings.TrimPrefix(text[end+1:], ",")
	} else if start := strings.Index(text, "{"); start > 0 {
		return append(ptxOperands(strings.TrimRight(text[:start], ", ")), text[start:])
	}
	for operand := range strings.SplitSeq(text, ",") {
		if operand = strings.TrimSpace(operand); operand != "" {
			list = append(list, operand)
		}
	}
	return list
}

// register returns the register of a name or a constant.
func (k *ptxKernel) register(name string) int {
	if r, ok := k.names[name]; ok {
		return r
	}
	value := uint64(0xdeadbeef_deadbeef) // until it is written
	if n, err := strconv.ParseInt(name, 0, 64); err == nil {
		value = uint64(n)
	}
	k.names[name] = len(k.initial)
	k.initial = append(k.initial, value)
	return k.names[name]
}

func (k *ptxKernel) instruction(op string, operands []string) (func(*ptxThread), error) {
	switch kind, rest, _ := strings.Cut(op, "."); kind {
	case "bra":
		label := operands[0]
		return func(t *ptxThread) { t.next = k.labels[label] }, nil
	case "bar":
		return func(t *ptxThread) { t.stop = ptxWaits }, nil
	case "ret":
		return func(t *ptxThread) { t.stop = ptxEnded }, nil
	case "ld":
		if name, ok := strings.CutPrefix(rest, "param."); ok && name != "" {
			d, param := k.register(operands[0]), strings.Trim(operands[1], "[]")
			return func(t *ptxThread) { t.reg[d] = t.at.params[param] }, nil
		}
		return k.access(rest, operands[1], operands[0], true)
	case "st":
		return k.access(rest, operands[0], operands[1], false)
	case "atom":
		return k.atomicAdd(rest, operands)
	}
	return k.compute(op, operands)
}

// access compiles a load or store of one to four values, such as global.v4.u32.
func (k *ptxKernel) access(op, place, values string, load bool) (func(*ptxThread), error) {
	part := ptxPlace.FindStringSubmatch(place)
	if part == nil {
		return nil, fmt.Errorf("no place in memory: %s", place)
	}
	base := k.register(part[1])
	offset, _ := strconv.ParseUint("0"+part[2], 10, 64)
	var regs []int
	for name := range strings.SplitSeq(strings.Trim(values, "{}"), ",") {
		regs = append(regs, k.register(strings.TrimSpace(name)))
	}
	bytes := ptxWidth(op) / 8
	shared := strings.HasPrefix(op, "shared.")
	if !shared && !strings.HasPrefix(op, "global.") {
		return nil, fmt.Errorf("memory that is not known: %s", op)
	}
	return func(t *ptxThread) {
		mem := t.memory(shared, t.reg[base]+offset, bytes*len(regs))
		for i, r := range regs {
			if load {
				t.reg[r] = ptxGet(mem[i*bytes:], bytes)
			} else {
				ptxPut(mem[i*bytes:], bytes, t.reg[r])
			}
		}
	}, nil
}

func (k *ptxKernel) atomicAdd(op string, operands []string) (func(*ptxThread), error) {
	place := ptxPlace.FindStringSubmatch(operands[1])
	if op != "shared.add.u32" || place == nil || place[2] != "" {
		return nil, fmt.Errorf("not known")
	}
	d, at, more := k.register(operands[0]), k.register(place[1]), k.register(operands[2])
	return func(t *ptxThread) {
		mem := t.memory(true, t.reg[at], 4)
		t.reg[d] = ptxGet(mem, 4)
		ptxPut(mem, 4, t.reg[d]+t.reg[more])
	}, nil
}

// memory returns n bytes, which must be aligned to n, as on a GPU.
func (t *ptxThread) memory(shared bool, addr uint64, n int) []byte {
	if addr%uint64(n) != 0 {
		panic(fmt.Sprintf("%d bytes at %#x", n, addr))
	}
	if shared {
		return t.at.shared[addr:][:n]
	}
	return t.at.global[addr-ptxBase:][:n]
}

func ptxGet(mem []byte, bytes int) uint64 {
	if bytes == 8 {
		return binary.LittleEndian.Uint64(mem)
	}
	return uint64(binary.LittleEndian.Uint32(mem))
}

func ptxPut(mem []byte, bytes int, v uint64) {
	if bytes == 8 {
		binary.LittleEndian.PutUint64(mem, v)
	} else {
		binary.LittleEndian.PutUint32(mem, uint32(v))
	}
}

// ptxWidth returns the width of an instruction's type, in bits.
func ptxWidth(op string) int {
	switch op[strings.LastIndex(op, ".")+1:] {
	case "pred":
		return 1
	case "b32", "s32", "u32":
		return 32
	}
	return 64
}

// run executes one launch, block by block.
func (k *ptxKernel) run(global []byte, grid int, params ...uint64) {
	block := &ptxBlock{global: global, shared: make([]byte, k.sharedBytes), params: map[string]uint64{}}
	for i, p := range params {
		block.params[k.params[i]] = p
	}
	threads := make([]ptxThread, tileChunks)
	for i := range threads {
		threads[i] = ptxThread{reg: make([]uint64, len(k.initial)), at: block}
	}
	for n := range grid {
		for i := range block.shared {
			block.shared[i] = 0xa5
		}
		for i := range threads {
			copy(threads[i].reg, k.initial)
			threads[i].reg[ptxTid], threads[i].reg[ptxCtaid] = uint64(i), uint64(n)
			threads[i].next, threads[i].stop = 0, ptxRuns
		}
		k.runBlock(n, threads)
	}
}

// runBlock runs the threads repeatedly to the next barrier: in reverse order
// first and then in forward order, the other way round in odd blocks.
func (k *ptxKernel) runBlock(number int, threads []ptxThread) {
	for left, step := len(threads), number; left > 0; step++ {
		for i := range threads {
			if step%2 == 0 {
				i = len(threads) - 1 - i
			}
			t := &threads[i]
			if t.stop == ptxEnded {
				continue
			}
			t.stop = ptxRuns
			k.runThread(t)
			if t.stop == ptxEnded {
				left--
			}
		}
	}
}

func (k *ptxKernel) runThread(t *ptxThread) {
	for range ptxStepsMax {
		in := &k.code[t.next]
		t.next++
		if in.unless == (t.reg[in.guard] == 0) {
			in.run(t)
		}
		if t.stop != ptxRuns {
			return
		}
	}
	panic("a thread does not come to an end")
}
