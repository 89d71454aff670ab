package manifest

// Inode identifies a file regardless of the path that leads to it, for as long
// as the file exists. No file has the zero Inode.
type Inode struct{ Dev, Ino uint64 }
