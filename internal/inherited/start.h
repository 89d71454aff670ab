/* Which of the descriptors 0, 1 and 2 were closed when the program was started,
 * a bit for each, and whether that was looked at in time. */
extern int inherited_looked;
extern unsigned inherited_missing;
