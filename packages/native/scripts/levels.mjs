/** The instruction sets that kernels are compiled for, best first, and the name of this platform. */
const vector256 = ['-mavx2', '-mfma', '-mf16c', '-mbmi', '-mbmi2', '-mtune=haswell'];
const vector512 = ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mprefer-vector-width=512'];

const levels = {
  x64: [
    { name: 'avx512', flags: ['-mavx2', '-mfma', '-mf16c', '-mbmi', '-mbmi2', ...vector512] },
    { name: 'avxvnni', flags: [...vector256, '-mavxvnni'], isEmulated: true },
    { name: 'avx2', flags: vector256 },
  ],
};

/**
 * Flags of builds for tests of levels whose instructions few machines have, `isEmulated`: avxvnni uses the encoding of AVX-512.
 */
export const emulating = ['-DWINNOW_EMULATED'];

/** Flags of builds that end at the first access outside an object and the first undefined result. */
export const sanitizing = ['-O1', '-g1', '-fsanitize=address,undefined', '-fno-sanitize-recover=all'];

export function levelsOf(architecture = process.arch) {
  return levels[architecture] ?? [];
}

/** `linux-x64-gnu`, as the packages of prebuilt addons end. */
export function platformName() {
  if (process.platform !== 'linux') return `${process.platform}-${process.arch}`;
  const { header } = process.report.getReport();
  return `linux-${process.arch}-${header.glibcVersionRuntime === undefined ? 'musl' : 'gnu'}`;
}
