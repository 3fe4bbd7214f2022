export function matmulInt8(): void {
  unreachable();
}
