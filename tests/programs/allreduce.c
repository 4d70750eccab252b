/* An all-reduce whose result every rank checks. Compiled by mpicc, run by mpirun (stacks_test.py). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  int rank, size, wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int count = 1; count <= 1 << 18; count *= 8) {
    long* in = malloc(sizeof(long) * count);
    long* out = malloc(sizeof(long) * count);
    for (int i = 0; i < count; ++i) in[i] = (long)(rank + 1) * (i + 1);
    MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) wrong += out[i] != (long)size * (size + 1) / 2 * (i + 1);
    free(in);
    free(out);
  }
  printf("rank %d of %d: %d wrong\n", rank, size, wrong);
  MPI_Finalize();
  return wrong != 0;
}
