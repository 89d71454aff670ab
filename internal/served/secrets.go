package served

import (
	"fmt"
	"os"
	"strconv"

	"gdrcp/internal/fsys"
)

// ReachedError is the error of a file with secrets that a client can reach.
type ReachedError struct {
	File     string
	Key, Dir string // the key that opens the directory
}

// Error implements error.
func (e *ReachedError) Error() string {
	return fmt.Sprintf("%s holds secrets, and it or what leads to it lies below %s, which key %s opens", strconv.Quote(e.File), strconv.Quote(e.Dir), e.Key)
}

// Guard checks that no client reaches a file with secrets: neither the file at the end
// of the path nor a directory or link on the way to it may lie below a directory of the
// set. Otherwise the error is a *ReachedError. Guard returns how many names (hard
// links) the file has: nobody can tell where the other names are.
func (s *Set) Guard(file string) (names int, err error) {
	path := file
	if path == "" || path[0] != '/' {
		dir, err := os.Getwd()
		if err != nil {
			return 0, err
		}
		path = dir + "/" + path // not cleaned: after a link the kernel takes .. from the link's target
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
