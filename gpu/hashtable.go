//go:build linux && cgo

package gpu

import (
	"encoding/binary"
	"fmt"
)

// Constants of blake3.cu.
const (
	hashChunkBytes = 1024 // BLAKE3's
	tileChunks     = 128  // per thread block
	jobLineBytes   = 32
	jobRoot        = 8 // BLAKE3's flag
)

// chunks returns the number of leaves of the job's tree: one even for an empty piece.
func (j *HashJob) chunks() int {
	return max(1, (j.Len+hashChunkBytes-1)/hashChunkBytes)
}

// check returns an error if the job is invalid. It does not check whose memory
// the job refers to.
func (j *HashJob) check() error {
	switch {
	case j.Memory == nil:
		return fmt.Errorf("no memory")
	case j.Offset%64 != 0:
		return fmt.Errorf("offset %d is not a multiple of 64", j.Offset)
	case j.Root && j.Counter != 0:
		return fmt.Errorf("a root that begins with chunk %d of its file", j.Counter)
	}
	_, err := j.Memory.at(j.Offset, j.Len)
	return err
}

// putJob writes a line of the job table: struct job of blake3.cu. addr is the address of
// the job's bytes, and first is the number of chunks of all earlier jobs.
//
//	0   8  address
//	8   8  bytes
//	16  8  counter of the first chunk
//	24  4  number of the first chunk in the launch
//	28  4  flags for the root
func putJob(line []byte, addr uint64, j *HashJob, first int) {
	binary.LittleEndian.PutUint64(line[0:], addr)
	binary.LittleEndian.PutUint64(line[8:], uint64(j.Len))
	binary.LittleEndian.PutUint64(line[16:], j.Counter)
	binary.LittleEndian.PutUint32(line[24:], uint32(first))
	root := uint32(0)
	if j.Root {
		root = jobRoot
	}
	binary.LittleEndian.PutUint32(line[28:], root)
}

// tableBytes returns the largest size of a table with the given number of lines.
func tableBytes(jobs int) int { return jobs * (jobLineBytes + 4) }

// putTable writes the lines of all jobs, whose bytes are at addr(i), followed
// by the numbers, in four bytes each, of the jobs that extend over several
// tiles. It returns the number of chunks and the number of such jobs.
func putTable(table []byte, jobs []HashJob, addr func(i int) uint64) (chunks, wide int) {
	list := table[len(jobs)*jobLineBytes:]
	for i := range jobs {
		j := &jobs[i]
		putJob(table[i*jobLineBytes:], addr(i), j, chunks)
		end := chunks + j.chunks()
		if chunks/tileChunks != (end-1)/tileChunks {
			binary.LittleEndian.PutUint32(list[4*wide:], uint32(i))
			wide++
		}
		chunks = end
	}
	return chunks, wide
}
