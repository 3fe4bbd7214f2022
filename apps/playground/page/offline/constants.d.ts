/** What the build puts in place of these names. */
declare const __FILES__: string[];
declare const __LARGE_FILES__: string[];
