package wire

import "fmt"

// DoorWish is the body of DoorProof, with fields as in a hello. It has what the client
// cannot say when it comes to the door, because it does not know yet how far away the
// server is, and what the server has to know before it tells its addresses.
type DoorWish struct {
	// GPU is where the client is going to ask for the server's slots. The addresses near
	// to it are told first. The hello decides, but it comes after the address is chosen.
	GPU GPUWish
	// Name is what gpu.Find takes. It is set where GPU is GPUNamed, and empty otherwise.
	Name string
	// Slots and QPs, where they are not 0, take the place of what the client asked for in
	// its preamble.
	Slots, QPs int
}

// Encode returns the body. It is empty where the client wishes for nothing.
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
