/** Dequantization of all data types to f32, and the data types. */
export * from './dequantize.generated';
export * from './dtypes.generated';
