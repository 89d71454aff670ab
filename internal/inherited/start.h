/* Which of the descriptors 0, 1 and 2 were closed when the program started, one
 * bit for each, and whether the constructor has run. */
extern int inherited_looked;
extern unsigned inherited_missing;
