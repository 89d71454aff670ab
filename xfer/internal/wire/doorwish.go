package wire

import "fmt"

// DoorWish is the body of DoorProof, with fields as in a hello. It has what the client
// cannot send in its preamble, because it does not know yet how far away the server is,
// and what the server needs before it sends its addresses.
type DoorWish struct {
	// GPU is the location that the client will request for the server's slots. The
	// addresses near it are sent first. The hello is decisive, but it is sent after the
	// address is chosen.
	GPU GPUWish
	// Name is a name for gpu.Find. It is set if GPU is GPUNamed, and empty otherwise.
	Name string
	// Slots and QPs, if not 0, replace the numbers in the client's preamble.
	Slots, QPs int
}

// Encode returns the body. It is empty if nothing is set.
func (d DoorWish) Encode() []byte {
	var w Writer
	if d.Name != "" {
		w.Str(tagGPUName, d.Name)
	}
	if d.GPU != GPUOff {
		w.Uint(tagGPU, uint64(d.GPU))
	}
	if d.Slots != 0 {
		w.Uint(tagFarSlots, uint64(d.Slots))
	}
	if d.QPs != 0 {
		w.Uint(tagFarQPs, uint64(d.QPs))
	}
	return w.Buf
}

// DecodeDoorWish is Encode's inverse, within the bounds of a hello.
func DecodeDoorWish(b []byte) (d DoorWish, err error) {
	var h Hello
	r := Reader{b}
	for {
		tag, v, ok, err := r.Next()
		if err == nil && !ok {
			d.GPU, d.Name = GPUWish(h.GPU), h.GPUName
			return d, h.checkGPU()
		}
		if err == nil {
			switch tag {
			case tagGPU, tagGPUName:
				err = h.field(tag, v)
			case tagFarSlots:
				d.Slots, err = decodeCount(tag, v, MaxSlots)
			case tagFarQPs:
				d.QPs, err = decodeCount(tag, v, MaxQPs)
			default:
				err = unknownField(tag)
			}
		}
		if err != nil {
			return DoorWish{}, err
		}
	}
}

// decodeCount decodes a number from 1 to most.
func decodeCount(tag byte, v []byte, most int) (int, error) {
	u, err := DecodeUint(tag, v)
	if err == nil && (u == 0 || u > uint64(most)) {
		err = fmt.Errorf("%w: field %#x is %d, of at most %d", ErrProtocol, tag, u, most)
	}
	return int(u), err
}
