package manifest

// Inode names a file whatever path leads to it, for as long as the file exists. No file
// has the zero Inode.
type Inode struct{ Dev, Ino uint64 }
