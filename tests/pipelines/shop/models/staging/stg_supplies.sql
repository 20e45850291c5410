with source as (

    select * from {{ source('raw', 'supplies') }}

)

select
    id as supply_id,
    product as product_id,
    supplier as supplier_id,
    {{ amount('cost') }} as cost,
    perishable as is_perishable
from source
