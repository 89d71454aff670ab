package xfer

import (
	"encoding/binary"
	"fmt"

	"gdrcp/xfer/internal/wire"
)

// part is a field of an encoded message.
type part struct {
	name string
	bits int // 8, 16, 32, 64; 0: a uvarint
	v    uint64
	raw  []byte // bytes that remain unchanged
	// covers is how many of the following parts this one's value is the length of, unless wrong.
	covers int
	wrong  bool
}

func encodeParts(ps []part) (b []byte) {
	for i, p := range ps {
		if p.covers > 0 && !p.wrong {
			p.v = uint64(len(encodeParts(ps[i+1 : min(len(ps), i+1+p.covers)])))
		}
		switch {
		case p.raw != nil:
			b = append(b, p.raw...)
		case p.bits == 0:
			b = binary.AppendUvarint(b, p.v)
		default:
			b = append(b, binary.LittleEndian.AppendUint64(nil, p.v)[:p.bits/8]...)
		}
	}
	return b
}

// mutant is a message with one thing out of range.
type mutant struct {
	name string
	body []byte
}

// mutants returns copies of a message with each of its fields in turn at 0, 1, a neighbour of its
// value, and the ends of all ranges; and cut, and with a byte more.
func mutants(ps []part) (out []mutant) {
	whole := encodeParts(ps)
	for i, p := range ps {
		if p.raw != nil {
			continue
		}
		bits := p.bits
		if bits == 0 {
			bits = 64
		}
		largest := ^uint64(0) >> (64 - bits)
		values := []uint64{0, 1, p.v - 1, p.v + 1, 1 << (bits - 1), largest}
		for _, shift := range []int{31, 32, 62} {
			if shift < bits {
				values = append(values, 1<<shift)
			}
		}
		seen := map[uint64]bool{p.v: true}
		for _, v := range values {
			if v &= largest; seen[v] {
				continue
			}
			seen[v] = true
			changed := append([]part(nil), ps...)
			changed[i].v, changed[i].wrong = v, true
			out = append(out, mutant{fmt.Sprintf("%s %d", p.name, v), encodeParts(changed)})
		}
		without := append(append([]part(nil), ps[:i]...), ps[i+1:]...)
		out = append(out,
			mutant{"cut before " + p.name, encodeParts(ps[:i])},
			mutant{"without " + p.name, encodeParts(without)})
	}
	out = append(out,
		mutant{"a byte less", whole[:max(0, len(whole)-1)]},
		mutant{"a byte more", append(append([]byte(nil), whole...), 0)},
		mutant{"twice", append(append([]byte(nil), whole...), whole...)})
	return out
}

// fieldParts splits type-length-value fields. Values in texts remain unchanged.
func fieldParts(b []byte, texts ...byte) (ps []part) {
	for r := (wire.NewReader(b)); ; {
		tag, v, ok, err := r.Next()
		if err != nil {
			panic(err)
		}
		if !ok {
			return ps
		}
		name := fmt.Sprintf("field %#x", tag)
		ps = append(ps, part{name: "tag of " + name, bits: 8, v: uint64(tag)}, part{name: "length of " + name, v: uint64(len(v)), covers: 1})
		text := false
		for _, t := range texts {
			text = text || t == tag
		}
		if u, err := wire.DecodeUint(tag, v); err == nil && !text {
			ps = append(ps, part{name: name, v: u})
		} else {
			ps = append(ps, part{name: name, raw: append([]byte{}, v...)})
		}
	}
}

// fixedParts splits a message of fields of fixed widths. A negative width is for bytes that remain
// unchanged.
func fixedParts(b []byte, bits ...int) (ps []part) {
	for i, n := range bits {
		name := fmt.Sprintf("field %d", i)
		if n < 0 {
			ps, b = append(ps, part{name: name, raw: append([]byte{}, b[:-n/8]...)}), b[-n/8:]
			continue
		}
		var wide [8]byte
		copy(wide[:], b[:n/8])
		ps, b = append(ps, part{name: name, bits: n, v: binary.LittleEndian.Uint64(wide[:])}), b[n/8:]
	}
	if len(b) > 0 {
		panic(fmt.Sprintf("%d bytes of a message have no field", len(b)))
	}
	return ps
}

// uvarintPartsOf splits a message of uvarints.
func uvarintPartsOf(b []byte) (ps []part) {
	for c := (wire.Cursor{Buf: b}); len(c.Buf) > 0 && !c.Bad; {
		ps = append(ps, part{name: fmt.Sprintf("field %d", len(ps)), v: c.Uvarint()})
	}
	return ps
}
