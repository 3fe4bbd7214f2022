/**
 * The instruction sets that kernels are compiled for, best first, and the name of this platform. `exported` are the variables of a set
 * that describe levels, `emulated` those that tests emulate, and `programs` those of source/tests that a level has.
 */
const vector256 = ['-mavx2', '-mfma', '-mf16c', '-mbmi', '-mbmi2', '-mtune=haswell'];
const vector512 = ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mprefer-vector-width=512'];

function simple(name, flags) {
  return { name, flags, exported: ['level'], programs: ['products'] };
}

const levels = {
  x64: [
    {
      name: 'avx512',
      flags: ['-mavx2', '-mfma', '-mf16c', '-mbmi', '-mbmi2', ...vector512],
      // the level amx is that of AVX-512 with a few kernels of its own
      exported: ['tileLevel', 'level'],
      emulated: ['tileLevel'],
      programs: ['products', 'tiles'],
      // of a program with emulated instructions
      emulatedSources: ['gemm/qgemm.cpp'],
      emulatedPrograms: ['tiles'],
    },
    {
      ...simple('avxvnni', [...vector256, '-mavxvnni']),
      emulated: ['level'],
      emulatedSources: ['gemm'],
      emulatedPrograms: ['products'],
    },
    simple('avx2', vector256),
  ],
  arm64: [simple('i8mm', ['-march=armv8.2-a+dotprod+i8mm']), simple('neon', ['-march=armv8.2-a+dotprod'])],
};

/** Flags of builds with emulated instructions: avxvnni uses the encoding of AVX-512, and amx arrays in place of tiles. */
export const emulating = ['-DWINNOW_EMULATED'];

/** Flags of builds that end at the first access outside an object and the first undefined result. */
export const sanitizing = ['-O1', '-g1', '-fsanitize=address,undefined', '-fno-sanitize-recover=all'];

export function levelsOf(architecture = process.arch) {
  return levels[architecture] ?? [];
}

/** The processor of a platform. */
export function architectureOf(platform) {
  return platform.split('-')[1];
}

/** `linux-x64-gnu`, as the packages of prebuilt addons end. */
export function platformName() {
  if (process.platform !== 'linux') return `${process.platform}-${process.arch}`;
  const { header } = /** @type {{ header: Record<string, unknown> }} */ (process.report.getReport());
  return `linux-${process.arch}-${header.glibcVersionRuntime === undefined ? 'musl' : 'gnu'}`;
}
