//go:build linux && cgo

package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// ptxCompute has the results of instructions for their operands, unsigned numbers of the
// width in the instruction's type, to which the result is truncated.
var ptxCompute = map[string]func(a, b, c uint64) uint64{
	"mov":            func(a, _, _ uint64) uint64 { return a },
	"cvt":            func(a, _, _ uint64) uint64 { return a },
	"cvta.to.global": func(a, _, _ uint64) uint64 { return a },
	"add":            func(a, b, _ uint64) uint64 { return a + b },
	"sub":            func(a, b, _ uint64) uint64 { return a - b },
	"neg":            func(a, _, _ uint64) uint64 { return -a },
	"mul.lo":         func(a, b, _ uint64) uint64 { return a * b },
	"mul.wide":       func(a, b, _ uint64) uint64 { return a * b },
	"mad.lo":         func(a, b, c uint64) uint64 { return a*b + c },
	"div":            func(a, b, _ uint64) uint64 { return a / b },
	"rem":            func(a, b, _ uint64) uint64 { return a % b },
	"min":            func(a, b, _ uint64) uint64 { return min(a, b) },
	"max":            func(a, b, _ uint64) uint64 { return max(a, b) },
	"and":            func(a, b, _ uint64) uint64 { return a & b },
	"or":             func(a, b, _ uint64) uint64 { return a | b },
	"xor":            func(a, b, _ uint64) uint64 { return a ^ b },
	"not":            func(a, _, _ uint64) uint64 { return ^a },
	"shl":            func(a, b, _ uint64) uint64 { return a << b },
	"shr":            func(a, b, _ uint64) uint64 { return a >> b },
	"shf.l.wrap":     func(a, b, c uint64) uint64 { return (b<<32 | a) << (c % 32) >> 32 },
	"prmt":           permuteBytes,
	"selp":           func(a, b, c uint64) uint64 { return a*c + b*(1-c) },
	"setp.eq":        func(a, b, _ uint64) uint64 { return truth(a == b) },
	"setp.ne":        func(a, b, _ uint64) uint64 { return truth(a != b) },
	"setp.lt":        func(a, b, _ uint64) uint64 { return truth(a < b) },
	"setp.le":        func(a, b, _ uint64) uint64 { return truth(a <= b) },
	"setp.gt":        func(a, b, _ uint64) uint64 { return truth(a > b) },
	"setp.ge":        func(a, b, _ uint64) uint64 { return truth(a >= b) },
}

// ptxSigned are the instructions among them that also accept signed types, with
// the same result.
var ptxSigned = []string{"add", "sub", "neg", "mul.lo", "mad.lo", "setp.eq", "setp.ne"}

func truth(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

// permuteBytes selects each byte of the result from the bytes of b and a, b
// first, by four bits of c.
func permuteBytes(a, b, c uint64) (d uint64) {
	for i := range 4 {
		place := c >> (4 * i) & 7
		d |= (b<<32 | a) >> (8 * place) & 0xff << (8 * i)
	}
	return d
}

// compute compiles an instruction without memory access or control flow: d = f(a, b, c).
func (k *ptxKernel) compute(op string, operands []string) (func(*ptxThread), error) {
	name, kind := op[:strings.LastIndex(op, ".")], op[strings.LastIndex(op, ".")+1:]
	in := ptxWidth(op)
	out := in
	switch {
	case strings.HasPrefix(name, "cvt."):
		out = ptxWidth(name)
		name = "cvt"
	case name == "mul.wide":
		out = 2 * in
	case strings.HasPrefix(name, "setp."):
		out = 1
	}
	f := ptxCompute[name]
	if f == nil || kind[0] == 's' && !slices.Contains(ptxSigned, name) {
		return nil, fmt.Errorf("not known")
	}
	var r [4]int
	for i := range r {
		r[i] = ptxZero
		if i < len(operands) {
			r[i] = k.register(operands[i])
		}
	}
	inMask, outMask := uint64(1)<<(in-1)<<1-1, uint64(1)<<(out-1)<<1-1
	return func(t *ptxThread) {
		t.reg[r[0]] = f(t.reg[r[1]]&inMask, t.reg[r[2]]&inMask, t.reg[r[3]]&inMask) & outMask
	}, nil
}
