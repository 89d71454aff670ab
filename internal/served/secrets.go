package served

import (
	"fmt"
	"os"
	"strconv"

	"gdrcp/internal/fsys"
)

// ReachedError is the error for a file with secrets that a client can access.
type ReachedError struct {
	File     string
	Key, Dir string // the key that opens the directory
}

// Error implements error.
func (e *ReachedError) Error() string {
	return fmt.Sprintf("%s holds secrets, and it or what leads to it lies below %s, which key %s opens", strconv.Quote(e.File), strconv.Quote(e.Dir), e.Key)
}

// Guard checks that no client can access a file with secrets: neither the file
// nor any directory or link on its path may be below a directory of the set.
// Otherwise the error is a *ReachedError. Guard returns the number of the
// file's hard links, because the locations of the others cannot be determined.
func (s *Set) Guard(file string) (names int, err error) {
	path := file
	if path == "" || path[0] != '/' {
		dir, err := os.Getwd()
		if err != nil {
			return 0, err
		}
		path = dir + "/" + path // not cleaned: after a link the kernel resolves .. from the link's target
	}
	held := make(map[place]*entry)
	for _, path := range s.paths() {
		if e := s.dirs[path]; e.dir.err == nil && held[e.dir.place] == nil {
			held[e.dir.place] = e
		}
	}
	fd, err := follow(path, len(path), func(dir int, _ bool) error {
		places, err := s.mounts.above(dir)
		if e := firstIn(held, places); e != nil {
			return &ReachedError{File: file, Key: e.key, Dir: e.dir.path}
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	defer fsys.CloseQuietly(fd)
	st, err := statusOf(fd)
	return int(st.names), err
}
