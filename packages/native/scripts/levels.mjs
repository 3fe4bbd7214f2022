/** The instruction sets that kernels are compiled for, best first, and the name of this platform. */
const vector256 = ['-mavx2', '-mfma', '-mf16c', '-mbmi', '-mbmi2', '-mtune=haswell'];
const vector512 = ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mprefer-vector-width=512'];

const levels = {
  x64: [
    { name: 'avx512', flags: ['-mavx2', '-mfma', '-mf16c', '-mbmi', '-mbmi2', ...vector512] },
    { name: 'avx2', flags: vector256 },
  ],
};

export function levelsOf(architecture = process.arch) {
  return levels[architecture] ?? [];
}

/** `linux-x64-gnu`, as the packages of prebuilt addons end. */
export function platformName() {
  if (process.platform !== 'linux') return `${process.platform}-${process.arch}`;
  const { header } = process.report.getReport();
  return `linux-${process.arch}-${header.glibcVersionRuntime === undefined ? 'musl' : 'gnu'}`;
}
