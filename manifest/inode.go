package manifest

// Inode names a file whatever path leads to it, for as long as the file exists.
// The zero Inode is that of no file.
type Inode struct{ Dev, Ino uint64 }
