package remote

// posixPoly is the polynomial of cksum (POSIX, cksum), most significant bit
// first.
const posixPoly = 0x04c11db7

// posixCRC is the checksum that cksum(1) prints, for hosts without sha256sum.
// It detects accidental corruption.
type posixCRC struct {
	crc   uint32
	table [256]uint32 // the effect of each byte on crc
}

func newPosixCRC() *posixCRC {
	c := &posixCRC{}
	for i := range c.table {
		crc := uint32(i) << 24
		for range 8 {
			carry := crc >> 31
			crc = crc<<1 ^ carry*posixPoly
		}
		c.table[i] = crc
	}
	return c
}

// Write implements io.Writer.
func (c *posixCRC) Write(b []byte) (int, error) {
	crc := c.crc
	for _, v := range b {
		crc = crc<<8 ^ c.table[byte(crc>>24)^v]
	}
	c.crc = crc
	return len(b), nil
}

// sum returns the checksum of the bytes written. It also covers their number.
func (c *posixCRC) sum(lengthBytes int64) uint32 {
	all := *c
	for n := lengthBytes; n > 0; n >>= 8 {
		_, _ = all.Write([]byte{byte(n)}) // never fails
	}
	return ^all.crc
}
