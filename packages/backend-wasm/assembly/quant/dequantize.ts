/** Numbers of any data type to f32, and the data types. */
export * from './dequantize.generated';
export * from './dtypes.generated';
